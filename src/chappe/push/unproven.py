"""Refusals of those who do not prove who they are: to be told from what one may not do."""

from __future__ import annotations

from chappe.errors import ErrorCode, FatalRequestError


class Unproven(FatalRequestError):
    """A signature or a token is missing or wrong."""

    code = ErrorCode.FORBIDDEN
