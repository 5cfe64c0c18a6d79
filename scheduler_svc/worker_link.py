"""What the stream of a worker means to the step loop, whether it comes by itself or a relay carries it."""

from __future__ import annotations

import logging

from google.protobuf.message import DecodeError

from scheduler_svc.step_loop import DivergenceError, Send, StepLoop
from signalbox.errors import InternalError, InvalidRequestError
from signalbox.outbox import OutboxFullError
from signalbox.v1 import scheduler_pb2

logger = logging.getLogger(__name__)


class WorkerSession:
    """One worker from its hello until its link ends. `end` has to be called, whatever happened."""

    def __init__(self, loop: StepLoop, first: scheduler_pb2.AttachWorkerRequest, send: Send) -> None:
        """Raises InvalidRequestError when there is no hello, or when its offer contradicts our settings; InternalError
        when it cannot be taken for a reason of ours; and OutboxFullError."""
        if not first.HasField("hello"):
            raise InvalidRequestError("the first message must carry hello", field="hello")
        self._loop = loop
        self._worker_id = first.hello.worker_id
        try:
            self._link = loop.attach_worker(first.hello, send)
        except (ValueError, DecodeError) as error:
            raise InvalidRequestError(str(error), field="hello") from None
        except Exception as error:
            logger.exception("the hello of worker %s failed", self._worker_id)
            raise InternalError(f"internal error ({type(error).__name__})") from None
        try:
            send(scheduler_pb2.AttachWorkerResponse(scheduler_epoch=loop.core.epoch))
        except OutboxFullError:
            self.end()
            raise

    def take(self, message: scheduler_pb2.AttachWorkerRequest) -> bool:
        """Takes reports and events. False: the link is to be closed, and the worker says hello again with its
        snapshot."""
        if not self._loop.is_current(self._worker_id, self._link):
            return False  # it said hello on another stream, or did not read this one
        try:
            self._loop.on_worker(self._worker_id, message)
        except DivergenceError as error:
            logger.error(
                "worker %s is out of step (%s); it is asked for its snapshot", self._worker_id, error
            )
            return False
        except Exception:
            # A report that cannot be read must not break the links of others behind the same relay.
            logger.exception("a message of worker %s failed", self._worker_id)
            return False
        return True

    def end(self) -> None:
        """The link ended."""
        self._loop.detach_worker(self._worker_id, self._link)
