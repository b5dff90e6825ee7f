#!/usr/bin/env python3
"""One lease of ipamd's, from allocate to release, with the standard library only:
    python3 lease.py job-17
As root, or as who may change leases. IPAMD_SOCKET names another socket than the service's.
"""
import http.client, json, os, socket, sys, time


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.environ.get("IPAMD_SOCKET", "/run/ipamd/ipamd.sock"))


def call(path, body, patience=30.0):
    """Posts body. A refusal that may pass, a daemon that is being restarted and a
    lost reply are tried again for patience seconds: every verb may be repeated."""
    until, pause = time.monotonic() + patience, 0.05
    while True:
        connection = Connection("ipamd", timeout=70)
        try:
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            if (reply := json.load(answer)) and answer.status < 300:
                return reply
            failure = RuntimeError(f"refused, {reply['code']}: {reply['message']}")
            after = float(answer.getheader("Retry-After", 0))
            if not reply["retryable"]:
                raise failure
        except PermissionError:
            raise  # waiting does not change who may open the socket
        except (OSError, http.client.HTTPException) as error:
            failure, after = error, 0
        finally:
            connection.close()
        pause = max(min(2 * pause, 5.0), after)
        if time.monotonic() + pause > until:
            raise failure
        time.sleep(pause)


if __name__ == "__main__":
    given = call("/v1/leases", {"sandbox": sys.argv[1]})
    lease, network = given["leases"][0], given["networks"][0]
    print(f"{lease['address']}/{lease['prefix_len']} on {network['bridge']} via {network['gateway']}")
    # Here a runtime plumbs the sandbox, and then says where the address is used.
    call(f"/v1/leases/{lease['id']}/bind", {"host_interface": "veth17", "if_revision": lease["revision"]})
    # Until the sandbox's removal is confirmed its lease is releasing, with what ipamd waits for.
    released = call(f"/v1/leases/{lease['id']}/release", {"uid": lease["uid"], "wait": "10s"})
    print(released["lease"]["state"], *(b.get("detail", "") for b in released.get("blockers", [])))
