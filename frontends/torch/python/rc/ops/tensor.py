"""The operations of the dialect `tensor`."""

from rc.ops._make import operations

globals().update(operations("tensor"))
