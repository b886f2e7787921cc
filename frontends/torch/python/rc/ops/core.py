"""The operations of the dialect `core`."""

from rc.ops._make import operations

globals().update(operations("core"))
