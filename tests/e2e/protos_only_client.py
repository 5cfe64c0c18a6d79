"""A client made from the protos alone: only the generated code is on the path, nothing else of signalbox.

`python protos_only_client.py ADDRESS PROMPT MAX_TOKENS` prints one JSON object.
"""

import json
import sys

import grpc

from signalbox.v1 import frontend_pb2, frontend_pb2_grpc, generation_pb2


def main(address: str, prompt: str, max_tokens: int) -> None:
    """Lists the models and generates once, greedily."""
    with grpc.insecure_channel(address) as channel:
        stub = frontend_pb2_grpc.GenerationServiceStub(channel)
        models = [model.id for model in stub.ListModels(frontend_pb2.ListModelsRequest(), timeout=20).models]
        sampling = generation_pb2.SamplingParams(temperature=0, max_tokens=max_tokens)
        request = frontend_pb2.GenerateRequest(text=prompt, sampling=sampling)
        messages = list(stub.Generate(request, timeout=60))
    finished = messages[-1].finished
    result = {
        "code_from": frontend_pb2.__file__,
        "models": models,
        "text": "".join(message.text for message in messages),
        "token_ids": [token for message in messages for token in message.token_ids],
        "accepted": [message.HasField("accepted") for message in messages],
        "finished": [message.HasField("finished") for message in messages],
        "reason": generation_pb2.FinishReason.Name(finished.reason),
        "num_output_tokens": finished.num_output_tokens,
    }
    print(json.dumps(result))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
