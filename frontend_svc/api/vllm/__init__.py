"""The faces for routers of other projects: vllm-router and smg."""
