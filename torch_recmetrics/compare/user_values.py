"""The values of users, which the metrics make and this room compares."""

from torch_recmetrics.users.user_values import NUMBERING, UserValues, checked_summary, current_versions

__all__ = ["NUMBERING", "UserValues", "checked_summary", "current_versions"]
