package storm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
)

// Guests, and local users who open the socket, run in processes of their own, whose
// processor time is limited as that of a sandbox or of a login is: all together have
// half a processor.
const (
	period = 100_000 // µs
	quota  = period / 2
)

const (
	readerUID  = 65534 // may read
	runtimeUID = 65533 // may change leases
)

// An order is what such a process is to do, until it is killed.
type order struct {
	Attack    string
	Group     string // the cgroup to join
	UID       int
	Seed      uint64
	Socket    string // ipamd's
	Netns     string
	MAC       net.HardwareAddr // of its own port
	Victim    netip.Addr       // of one that lives; zero: none does
	VictimMAC net.HardwareAddr
}

// A confined is such a process from inside.
type confined struct {
	order
	r *rand.Rand
}

const orderEnv = "STORM_ORDER"

func TestMain(m *testing.M) {
	text, ok := os.LookupEnv(orderEnv)
	if !ok {
		os.Exit(m.Run())
	}
	if err := obey([]byte(text)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// obey carries out an order.
func obey(text []byte) error {
	c := &confined{}
	if err := json.Unmarshal(text, &c.order); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Group, "cgroup.procs"), []byte("0"), 0); err != nil {
		return err
	}
	if c.UID != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(c.UID), syscall.Setuid(c.UID)); err != nil {
			return err
		}
	}
	c.r = rand.New(rand.NewPCG(c.Seed, 0))
	i := slices.IndexFunc(hostilities, func(a attack) bool { return a.name == c.Attack })
	return hostilities[i].confined(c)
}

// behindAPort has an attack go on in a namespace behind a port, by who is root there.
func behindAPort(name string, do func(*confined) error) attack {
	return attack{name: name, confined: do, do: func(h *hostile, ctx context.Context) error {
		return h.plugged(func(p *port) error {
			return h.confine(ctx, order{Attack: name, Netns: p.path, MAC: p.mac})
		})
	}}
}

// atTheSocket has an attack go on by a local user.
func atTheSocket(name string, uid int, do func(*confined) error) attack {
	return attack{name: name, confined: do, do: func(h *hostile, ctx context.Context) error {
		return h.confine(ctx, order{Attack: name, UID: uid})
	}}
}

// confine has a process carry out an order until ctx ends.
func (h *hostile) confine(ctx context.Context, o order) error {
	o.Group, o.Seed, o.Socket = h.group, h.r.Uint64(), h.client.Socket
	if l, mac, ok := h.victim(); ok {
		o.Victim, o.VictimMAC = l.addr, mac
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var message strings.Builder
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), orderEnv+"="+string(text))
	cmd.Stderr = &message
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); ctx.Err() == nil {
		return fmt.Errorf("%v: %s", err, message.String())
	}
	return nil
}

// newGroup makes the cgroup of all that is hostile, in a hierarchy of version 1 or 2.
func newGroup(t *testing.T) (path string) {
	t.Helper()
	const root, one = "/sys/fs/cgroup", "/sys/fs/cgroup/cpu"
	file, limit := "cpu.cfs_quota_us", strconv.Itoa(quota)
	parent := one
	if _, err := os.Stat(one); errors.Is(err, fs.ErrNotExist) {
		parent, file, limit = root, "cpu.max", fmt.Sprint(quota, " ", period)
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			realtest.Lack(t, "needs a cgroup that limits processor time: "+err.Error())
		}
	}
	path, err := os.MkdirTemp(parent, "storm-")
	if err != nil {
		realtest.Lack(t, "needs a cgroup that limits processor time: "+err.Error())
	}
	t.Cleanup(func() {
		realtest.Eventually(t, patience, "the cgroup is empty", func() bool { return !errors.Is(os.Remove(path), syscall.EBUSY) })
	})
	if err := os.WriteFile(filepath.Join(path, file), []byte(limit), 0); err != nil {
		t.Fatal(err)
	}
	return path
}
