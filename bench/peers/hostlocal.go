package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A hostLocal is the CNI plugin host-local as container runtimes use it: a
// program that is started for each call, and a file an address. It syncs
// nothing.
type hostLocal struct {
	plugin string
	conf   []byte
	files  string
}

// HostLocal opens a store of the plugin below dir.
func HostLocal(t testing.TB, plugin, dir string, prefix netip.Prefix, taken int) Store {
	const network = "bench"
	h := &hostLocal{plugin: plugin, files: filepath.Join(dir, network)}
	var err error
	if h.conf, err = json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": network, "type": "bridge",
		"ipam": map[string]any{"type": "host-local", "dataDir": dir, "ranges": [][]map[string]string{{{"subnet": prefix.String()}}}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(h.files, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, addr := range takenOf(prefix, taken) {
		err := os.WriteFile(h.file(addr), fmt.Appendf(nil, "taken-%d\r\neth0", i), 0o600)
		if err == nil && i == taken-1 { // the plugin goes on after it
			err = os.WriteFile(filepath.Join(h.files, "last_reserved_ip.0"), []byte(addr.String()), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *hostLocal) file(addr netip.Addr) string { return filepath.Join(h.files, addr.String()) }

func (h *hostLocal) Allocate(sandbox string) (netip.Addr, error) {
	cmd := exec.Command(h.plugin)
	cmd.Stdin = bytes.NewReader(h.conf)
	cmd.Env = []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + sandbox, "CNI_IFNAME=eth0",
		"CNI_NETNS=/run/netns/" + sandbox, "CNI_PATH=" + filepath.Dir(h.plugin)}
	out, err := cmd.Output()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("host-local ADD %s: %w: %s", sandbox, err, out)
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.IPs) != 1 {
		return netip.Addr{}, fmt.Errorf("read the result of host-local: %v: %s", err, out)
	}
	return result.IPs[0].Address.Addr(), nil
}

// Undo does what DEL ends in, without its walk over all files.
func (h *hostLocal) Undo(_ string, addr netip.Addr) error { return os.Remove(h.file(addr)) }
