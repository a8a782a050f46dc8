"""Recommendations in files: exported, evaluated, compared, without a model or a trainer at hand."""
