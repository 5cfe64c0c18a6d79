"""How addresses of gRPC faces say whether they are TLS."""

from __future__ import annotations

SECURE, PLAIN = "grpcs://", "grpc://"
