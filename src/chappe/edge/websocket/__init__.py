"""The WebSocket edge."""

from chappe.edge.websocket.edge import WebSocketEdge

__all__ = ["WebSocketEdge"]
