package systemd

import "fmt"

// sandboxSpec is a container of one busybox, which asks its cgroup for nothing:
// the machine has no controllers to give.
const sandboxSpec = `{"ociVersion": "1.0.2", "root": {"path": "/srv/sandbox"},
"process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["/bin/busybox", "sleep", "3600"], "env": ["PATH=/bin"], "noNewPrivileges": true},
"mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
"linux": {"cgroupsPath": "/sandboxes", "namespaces": [{"type": "pid"}, {"type": "network"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]}}
`

// A sandbox is a container on rt0 with an address from ipamd.
type sandbox struct {
	m                 *machine
	name, id, address string
}

// sandbox makes one.
func (m *machine) sandbox(name string) *sandbox {
	m.t.Helper()
	l := m.give(name)
	m.put("/srv/sandbox.json", sandboxSpec)
	m.sh("mkdir -p /srv/sandbox/bin /srv/sandbox/proc; cp /bin/busybox /srv/sandbox/bin/")
	m.do("ctr", "run", "--detach", "--config", "/srv/sandbox.json", "--label", "runtime.computer/entity-id="+name,
		"--label", "runtime.computer/ip="+l.Address, name)
	s := &sandbox{m: m, name: name, id: l.ID, address: l.Address}
	m.sh(fmt.Sprintf(`pid=$(ctr task ls | awk '$1 == "%s" { print $2 }')
		ip link add v-%[1]s type veth peer name eth0 netns /proc/$pid/ns/net
		ip link set v-%[1]s master rt0 up
		nsenter -t $pid -n ip address add %s/24 dev eth0
		nsenter -t $pid -n ip link set eth0 up`, name, l.Address))
	return s
}

// end kills and deletes it, and lets its lease go first.
func (s *sandbox) end() {
	s.m.t.Helper()
	s.m.ctl("release", s.id)
	s.m.sh(fmt.Sprintf("ctr task kill -s KILL %[1]s; ctr task rm -f %[1]s >/dev/null 2>&1 || true; ctr container rm %[1]s", s.name))
}
