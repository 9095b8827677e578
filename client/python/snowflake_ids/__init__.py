"""Ids made in this process: see the README beside this package."""
from .layout import Layout, Parts
from .node import Reason, Snowflake, SnowflakeError, State

__all__ = ['Layout', 'Parts', 'Reason', 'Snowflake', 'SnowflakeError', 'State']
