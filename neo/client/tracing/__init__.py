"""Spans of commits and loads, for applications that trace with OpenTelemetry (decision 56)."""
