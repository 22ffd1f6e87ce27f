"""The front door of a server: calls are authorized, validated and turned into commands; REST and the wire protocol."""
