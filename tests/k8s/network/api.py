"""The stub of the Kubernetes API as an outsider of the network: TLS by an authority of its own, a Role, a token.

python -m tests.k8s.network.api serve ADDRESS ACCOUNT RULES    # RULES: of the Role, as JSON; until SIGTERM
python -m tests.k8s.network.api look ADDRESS ACCOUNT           # all Leases of the namespace the first allows, as JSON

ACCOUNT is the folder that pods find as that of their account: `ca.crt` and `token` are written into it.
"""

from __future__ import annotations

import http.client
import json
import signal
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path

from signalbox.links.tls.authority import make_authority, make_leaf, write_issued
from signalbox.links.tls.roles import Role
from signalbox.runtime.process import die_with_parent
from tests.scheduler_svc.lease.api_server import PREFIX, TOKEN, api_server
from tools.rehearsal.environment import NAMESPACE

PORT = 443
LEASE = f"{PREFIX}{NAMESPACE}/leases/signalbox-leader"


def serve(address: str, account: Path, rules: str) -> None:
    """Answers until it is told to stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    die_with_parent()
    now = datetime.now(UTC)
    authority = make_authority(now)
    # The role is nobody's concern here: the address is what callers check.
    write_issued(account, "api", make_leaf(authority, Role.FRONTEND, now, hosts=[address]))
    with api_server(account / "api.crt", account / "api.key", (address, PORT), json.loads(rules)):
        (account / "ca.crt").write_bytes(authority.cert_pem)
        (account / "token").write_text(TOKEN)
        signal.sigwait({signal.SIGTERM})


def look(address: str, account: Path) -> None:
    """Prints the Lease's spec."""
    context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    api = http.client.HTTPSConnection(address, PORT, timeout=10, context=context)
    api.request("GET", LEASE, headers={"Authorization": f"Bearer {TOKEN}"})
    print(json.dumps(json.loads(api.getresponse().read())["spec"]))


if __name__ == "__main__":
    _, command, where, folder, *rest = sys.argv
    if command == "serve":
        serve(where, Path(folder), *rest)
    else:
        look(where, Path(folder))
