package systemd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ask posts to Docker's driver as dockerd does, and prints the answer.
const ask = `use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new("/run/docker/plugins/ipamd.sock") or die "connect: $!";
my ($path, $body) = @ARGV; print $s "POST $path HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: " . length($body) . "\r\n\r\n$body"; print <$s>;`

// tellDocker has a request at the driver's socket start its service, as closed as it is: it
// reaches the daemon, and the host's routes and links. Its package comes and goes beside the daemon's.
func tellDocker(t *testing.T, m *machine) {
	found, err := filepath.Glob("../bin/ipamd-docker_*.deb")
	if err != nil || len(found) != 1 {
		t.Fatalf("make deb left %v, %v", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	m.put("/root/ipamd-docker.deb", string(text))
	m.do("dpkg", "-i", "/root/ipamd-docker.deb")
	if out, err := m.try("systemctl", "is-active", "ipamd-docker.service"); err == nil {
		t.Errorf("it runs before a client asks: %s", out)
	}
	for _, c := range []struct{ body, want string }{
		{`{"AddressSpace":"ipamd","Pool":"192.0.2.0/31"}`, `"PoolID":"docker-192-0-2-0-31/192.0.2.0/31"`}, // made: it may ask for that
		{`{"AddressSpace":"ipamd","Options":{"pool":"docker-192-0-2-0-31"}}`, `"PoolID"`},
		{`{"AddressSpace":"ipamd","Options":{"pool":"none"}}`, "there is no such v4 pool"},
	} {
		if out := m.do("perl", "-e", ask, "/IpamDriver.RequestPool", c.body); !strings.Contains(out, c.want) {
			t.Errorf("%s: %s", c.body, out)
		}
	}
	m.sh("ip link add br-other type bridge && ip address add 192.0.2.0/31 dev br-other")
	if out := m.do("perl", "-e", ask, "/IpamDriver.RequestAddress", `{"PoolID":"docker-192-0-2-0-31/192.0.2.0/31","Options":{"com.docker.network.endpoint.macaddress":"02:42:00:00:00:01"}}`); !strings.Contains(out, "the gateway 192.0.2.0 is on br-other") {
		t.Errorf("it does not see the host's links: %s", out)
	}
	m.do("ip", "link", "del", "br-other")
	m.do("systemctl", "is-active", "ipamd-docker.service")
	if out := m.do("perl", "-e", ask, "/IpamDriver.ReleasePool", `{"PoolID":"docker-192-0-2-0-31/192.0.2.0/31"}`); !strings.Contains(out, "{}") {
		t.Errorf("release the pool: %s", out)
	}
	m.do("dpkg", "-P", "ipamd-docker")
	if _, err := m.try("test", "-e", "/run/docker/plugins/ipamd.sock"); err == nil {
		t.Error("its socket stays behind the package")
	}
}
