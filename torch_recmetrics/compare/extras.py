"""Packages that only some of this room needs, and files that appear whole or not at all."""

from torch_recmetrics.users.extras import EXTRAS, needed, whole_file, write_text

__all__ = ["EXTRAS", "needed", "whole_file", "write_text"]
