#!/usr/bin/env python3
"""One lease of ipamd's, from allocate to release, with the standard library only.

    IPAMD_SOCKET=./run/ipamd.sock examples/python/lease.py job-17
"""
import http.client, json, os, socket, sys, time

SOCKET = os.environ.get("IPAMD_SOCKET", "/run/ipamd/ipamd.sock")


class Refused(Exception):
    """What ipamd answers when it refuses: code, message, retryable, details."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code, self.retryable = error["code"], error["retryable"]


class Connection(http.client.HTTPConnection):
    """HTTP over ipamd's unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


def call(path, body, patience=30.0):
    """Posts body. A refusal that may pass, a daemon that is being restarted and a
    lost reply are tried again for patience seconds: every verb may be repeated."""
    until, pause = time.monotonic() + patience, 0.05
    while True:
        connection = Connection("ipamd", timeout=70)
        try:
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            reply = json.load(answer)
            if answer.status < 300:
                return reply
            failure, after = Refused(reply), float(answer.getheader("Retry-After", 0))
            if not failure.retryable:
                raise failure
        except PermissionError:
            raise  # waiting does not change who may open the socket
        except (OSError, http.client.HTTPException) as error:
            failure, after = error, 0.0
        finally:
            connection.close()
        pause = min(2 * pause, 5.0)
        if time.monotonic() + max(pause, after) > until:
            raise failure
        time.sleep(max(pause, after))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: lease.py SANDBOX")
    given = call("/v1/leases", {"sandbox": sys.argv[1]})
    lease, network = given["leases"][0], given["networks"][0]
    print(f"{lease['address']}/{lease['prefix_len']} on {network['bridge']} via {network['gateway']}")
    # Here a runtime plumbs the sandbox, and then says where the address is used.
    call(f"/v1/leases/{lease['id']}/bind", {"host_interface": "veth17", "if_revision": lease["revision"]})
    # The sandbox runs, and ends. Until its removal is confirmed the lease is
    # releasing; the reply says what ipamd waits for.
    released = call(f"/v1/leases/{lease['id']}/release", {"uid": lease["uid"], "wait": "10s"})
    print(released["lease"]["state"], *(b.get("detail", "") for b in released.get("blockers", [])))
