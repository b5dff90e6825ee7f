package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// exampleFile is what an operator starts from.
const exampleFile = "../docs/ipamd.example.toml"

func written(t testing.TB, c Config) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// file writes a configuration and returns its path.
func file(t testing.TB, doc string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ipamd.toml")
	if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func loaded(t testing.TB, doc string) Config {
	t.Helper()
	c, err := Load(t.Context(), file(t, doc))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestExampleIsTheDefaults(t *testing.T) {
	example, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := written(t, Default()); !bytes.Equal(example, want) {
		t.Errorf("docs/ipamd.example.toml is not what `ipamd config` prints:\n%s", want)
	}
}

// other is a configuration without a single default in it.
func other() Config {
	return Config{
		Book: Book{Path: "/srv/book.db", Synchronous: "normal", ChangesKept: 7,
			ChangesKeptFor: Duration(90 * time.Minute), RunnerUID: "it's-\"runner\"-7"},
		Socket: Socket{Path: "/srv/s", Mode: "0600", Group: "0", RuntimeUIDs: []uint32{1000, 4294967294},
			RuntimeGIDs: []uint32{7}, MaxConnections: 9, MaxInFlight: 4, MaxRate: 5, MaxReaderRate: 6, Deadline: Duration(1500 * time.Millisecond)},
		Bridge: Bridge{Name: "br9", Manage: true, MTU: 9000, Refresh: Duration(time.Hour + time.Second), Netns: []string{"/run/docker/netns"}},
		Pools: []Pool{
			{Name: "a", Prefix: "10.9.0.0/24", Gateway: "10.9.0.254", Bridge: "br8", Exclude: []string{"10.9.0.7", "10.9.0.16/28"},
				Routes: []Route{{Destination: "192.0.2.0/24", Via: "10.9.0.9"}}, DNS: []string{"10.9.0.1", "fd00::53"},
				Kept: []Kept{{Sandbox: "db", Address: "10.9.0.77"}}, Cooldown: Duration(time.Hour), CooldownMin: Duration(time.Minute),
				Exhausted: "strict", MTU: 1400, Labels: []string{"zone=a"}, Warm: Warm{Size: 3, Max: 5, Strategy: "on_replenish"}},
			{Name: "a", Prefix: "fd00:9::/64", Gateway: "none", Exclude: []string{}, Routes: []Route{}, DNS: []string{}, Kept: []Kept{}, Labels: []string{}},
		},
		Allocation: Allocation{Cooldown: Duration(time.Minute), CooldownMin: Duration(time.Second), Exhausted: "strict",
			BindWithin: Duration(time.Hour), MaxConflicts: 3, Require: "all", Quarantine: Duration(time.Minute),
			QuarantineShare: 0.5, Tombstone: Duration(2 * time.Hour)},
		Probe: Probe{Window: Duration(20 * time.Millisecond), Ahead: 1},
		Runtime: Runtime{Kind: "containerd", Address: "/srv/c.sock", Namespaces: []string{"k8s.io", "default"},
			Timeout: Duration(time.Second), OwnerLabel: "o", AddressLabel: "a", LeaseLabel: "l", UIDLabel: "u"},
		Watchdog: Watchdog{Timeout: Duration(time.Second), Parallel: 2, ReleasingMax: Duration(time.Minute),
			RemoveOrphans: true, KillWait: Duration(time.Second)},
		Owner: Owner{Socket: "/srv/o", UIDs: []uint32{1001}, Timeout: Duration(time.Second), Every: Duration(time.Second), Grace: Duration(time.Second)},
		Wake:  Wake{Resumer: "exec", Command: []string{"/srv/resume", "-v"}, Wait: Duration(time.Second)},
		Idle:  Idle{After: Duration(time.Minute), Ignore: []string{"10.8.64.9"}},
		Reconcile: Reconcile{Every: Duration(time.Second), Misses: 4, Age: Duration(time.Minute),
			MaxReleases: 0.5, LeastReleases: 1},
		Metrics: Metrics{Listen: "[::1]:9713"},
		Enforce: Enforce{Mode: "observe", Unleased: "drop", Trusted: []string{"eth1", "uplink*"}},
		Log:     Log{Level: "debug", Format: "json"},
	}
}

func TestWhatIsWrittenLoadsTheSame(t *testing.T) {
	for name, want := range map[string]Config{"defaults": Default(), "nothing default": other()} {
		if got := loaded(t, string(written(t, want))); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: wrote %+v, loaded %+v", name, want, got)
		}
	}
	if c, err := Load(t.Context(), ""); err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("no file: %+v, %v", c, err)
	}
}

// TestEveryOptionIsDocumented also keeps other() honest: an option that is new
// must be given there, or the round trip would not notice its loss.
func TestEveryOptionIsDocumented(t *testing.T) {
	var walk func(at string, a, b reflect.Value)
	walk = func(at string, a, b reflect.Value) {
		for i := range a.NumField() {
			f := a.Type().Field(i)
			name := at + f.Tag.Get("toml")
			if f.Tag.Get("comment") == "" {
				t.Errorf("%s has no comment", name)
			}
			for _, line := range strings.Split(f.Tag.Get("comment"), "\n") {
				if len(line) > 96 {
					t.Errorf("%s: a comment line has %d columns", name, len(line))
				}
			}
			switch x, y := a.Field(i), b.Field(i); {
			case x.Kind() == reflect.Struct && !isText(x.Type()):
				walk(name+".", x, y)
			case f.Type == reflect.TypeFor[[]Pool]():
				walk(name+".", x.Index(0), y.Index(0))
			case reflect.DeepEqual(x.Interface(), y.Interface()) && name != "runtime.kind":
				t.Errorf("%s is the default in other() too", name)
			}
		}
	}
	walk("", reflect.ValueOf(Default()), reflect.ValueOf(other()))
}

func TestWhatAFileLeavesOutIsDefault(t *testing.T) {
	c := loaded(t, "[allocation]\ncooldown = \"1h\"\n\n[socket]\nruntime_uids = [1000]\n")
	want := Default()
	want.Allocation.Cooldown = Duration(time.Hour)
	want.Socket.RuntimeUIDs = []uint32{1000}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v", c)
	}
	if c := loaded(t, "# nothing\n"); !reflect.DeepEqual(c, Default()) {
		t.Errorf("an empty file gave %+v", c)
	}
}

func TestPoolsOfAFileReplaceTheDefaultOne(t *testing.T) {
	c := loaded(t, "[[pool]]\nname = 'blue'\nprefix = '10.9.0.0/30'\n[[pool]]\nname = 'blue'\nprefix = 'fd00::/64'\ngateway = 'none'\n")
	specs, err := c.PoolSpecs()
	if err != nil || len(specs) != 2 {
		t.Fatalf("pools: %+v, %v", specs, err)
	}
	if s := specs[0]; s.Name != "blue" || s.Prefix.String() != "10.9.0.0/30" || s.Gateway.String() != "10.9.0.1" || s.Bridge != "rt0" {
		t.Errorf("first pool: %+v", s)
	}
	if s := specs[1]; s.Gateway.IsValid() {
		t.Errorf("gateway of the second pool: %s", s.Gateway)
	}
}

func TestPoolDetailsReachTheBook(t *testing.T) {
	c := loaded(t, `
[bridge]
name = "br7"
[[pool]]
name = "a"
prefix = "10.9.0.0/24"
gateway = "10.9.0.254"
exclude = ["10.9.0.7", "10.9.0.100-10.9.0.110", "10.9.0.16/28"]
dns = ["10.9.0.53", "fd00::53"]
cooldown = "1h"
cooldown_min = "1m"
exhausted = "strict"
mtu = 1400
labels = ["zone=a=b", "empty="]
[[pool.routes]]
destination = "192.0.2.0/24"
via = "10.9.0.9"
[pool.warm]
size = 8
max = 12
strategy = "on_replenish"
[[pool]]
name = "b"
prefix = "10.10.0.0/24"
`)
	specs, err := c.PoolSpecs()
	if err != nil {
		t.Fatal(err)
	}
	s := specs[0]
	if s.Bridge != "br7" || s.Gateway.String() != "10.9.0.254" || len(s.Exclude) != 3 || s.Exclude[2].String() != "10.9.0.16-10.9.0.31" ||
		len(s.DNS) != 2 || len(s.Routes) != 1 || s.Routes[0].Via.String() != "10.9.0.9" || s.Cooldown != time.Hour || s.CooldownMin != time.Minute ||
		s.Exhausted != "strict" || s.MTU != 1400 || len(s.Labels) != 2 || s.Labels["zone"] != "a=b" ||
		s.Warm == nil || *s.Warm != (ipam.Warm{Size: 8, Max: 12, Strategy: ipam.SlotsOnReplenish}) {
		t.Errorf("got %+v", s)
	}
	if specs[1].Warm != nil {
		t.Errorf("a pool that says nothing of slots: %+v", specs[1].Warm)
	}
}

func TestDurationsAreSpelledShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                             "0s",
		30 * time.Minute:              "30m",
		720 * time.Hour:               "720h",
		90 * time.Minute:              "1h30m",
		time.Hour + time.Second:       "1h0m1s",
		50 * time.Millisecond:         "50ms",
		10 * time.Minute:              "10m",
		-2 * time.Hour:                "-2h",
		100*time.Second + time.Second: "1m41s",
	} {
		if got := (Duration(d)).String(); got != want {
			t.Errorf("%v is spelled %q, want %q", d, got, want)
		}
	}
}

func TestSocketsGroup(t *testing.T) {
	for group, want := range map[string]int{"": -1, "0": 0, "4321": 4321, "root": 0} {
		if got, err := (Socket{Group: group}).GID(); err != nil || got != want {
			t.Errorf("group %q is %d, %v; want %d", group, got, err, want)
		}
	}
	_, err := Socket{Group: "no-such-group"}.GID()
	if err == nil || !strings.Contains(err.Error(), "groupadd --system no-such-group") {
		t.Errorf("a group that is not there: %v", err)
	}
}

// FuzzConfig: a file either is refused, each problem with its reason, or
// writes down as a file that means the same.
func FuzzConfig(f *testing.F) {
	f.Add(string(written(f, Default())))
	f.Add(string(written(f, other())))
	for _, c := range badConfigs {
		f.Add(c.doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		c, err := parse("F", []byte(doc))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "F:") {
				t.Errorf("%q does not begin with the file", err)
			}
			return
		}
		again, err := parse("F", written(t, c))
		if err != nil {
			t.Fatalf("loaded, but what it writes is refused: %v", err)
		}
		if !bytes.Equal(written(t, again), written(t, c)) {
			t.Errorf("%+v became %+v", c, again)
		}
	})
}

func TestMetricsAddress(t *testing.T) {
	for listen, want := range map[string]string{
		"":               "invalid AddrPort",
		":9713":          "127.0.0.1:9713", // loopback unless it says otherwise
		":0":             "127.0.0.1:0",
		"127.0.0.1:9713": "127.0.0.1:9713",
		"0.0.0.0:9713":   "0.0.0.0:9713",
		"[::1]:9713":     "[::1]:9713",
	} {
		if at, err := (Metrics{Listen: listen}).AddrPort(); err != nil || at.String() != want {
			t.Errorf("%q is %v, %v; want %s", listen, at, err, want)
		}
	}
	for _, listen := range []string{"9713", ":", ":-1", ":65536", "localhost:9713", "10.0.0.7", "[::1]", "10.0.0.7:", "tcp://10.0.0.7:1"} {
		if at, err := (Metrics{Listen: listen}).AddrPort(); err == nil || !strings.Contains(err.Error(), listen) {
			t.Errorf("%q is %v, %v", listen, at, err)
		}
	}
}
