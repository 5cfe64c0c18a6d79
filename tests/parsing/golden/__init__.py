"""What each family makes of a conversation, and of what a model answers to it, as files that a person can read.

A file has, in sections: the prompt that the model's own template makes; its tokens where the model's vocabulary is at
hand; what the model writes; the parts that a client is streamed when that comes in pieces; and the whole message.
`python -m tests.parsing.golden --write` writes them anew.
"""
