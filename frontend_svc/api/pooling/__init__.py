"""Reranking, scores, labels and raw results of pooling, in the shapes of vLLM, Jina and Cohere."""
