"""The public face over gRPC (protos/signalbox/v1/frontend.proto)."""
