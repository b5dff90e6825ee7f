package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
)

// A hostLocal is the CNI plugin host-local as container runtimes use it: a
// program that is started for each call, and a file an address. It syncs
// nothing.
type hostLocal struct {
	plugin string
	conf   []byte
	files  string
}

const networkName = "bench"

// openHostLocal finds the plugin beside this program, and writes the files of
// the taken addresses as the plugin would.
func openHostLocal(_ context.Context, dir string, prefix netip.Prefix, taken int) (store, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &hostLocal{plugin: filepath.Join(filepath.Dir(self), "host-local"), files: filepath.Join(dir, networkName)}
	h.conf, err = json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": networkName, "type": "bridge",
		"ipam": map[string]any{"type": "host-local", "dataDir": dir, "ranges": [][]map[string]string{{{"subnet": prefix.String()}}}},
	})
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(h.files, 0o755); err != nil {
		return nil, err
	}
	for i, addr := range takenOf(prefix, taken) {
		if err := os.WriteFile(h.file(addr), fmt.Appendf(nil, "taken-%d\r\neth0", i), 0o600); err != nil {
			return nil, err
		}
		if i == taken-1 { // the plugin goes on after it
			if err := os.WriteFile(filepath.Join(h.files, "last_reserved_ip.0"), []byte(addr.String()), 0o600); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

func (h *hostLocal) file(addr netip.Addr) string { return filepath.Join(h.files, addr.String()) }

// call runs the plugin once.
func (h *hostLocal) call(ctx context.Context, command, sandbox string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, h.plugin)
	cmd.Stdin = bytes.NewReader(h.conf)
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + sandbox, "CNI_IFNAME=eth0",
		"CNI_NETNS=/run/netns/" + sandbox, "CNI_PATH=" + filepath.Dir(h.plugin)}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("host-local %s %s: %w: %s", command, sandbox, err, out)
	}
	return out, nil
}

func (h *hostLocal) allocate(ctx context.Context, sandbox string) (netip.Addr, error) {
	out, err := h.call(ctx, "ADD", sandbox)
	if err != nil {
		return netip.Addr{}, err
	}
	var result struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return netip.Addr{}, fmt.Errorf("read the result of host-local: %w", err)
	}
	if len(result.IPs) != 1 {
		return netip.Addr{}, fmt.Errorf("host-local gave %d addresses: %s", len(result.IPs), out)
	}
	return result.IPs[0].Address.Addr(), nil
}

func (h *hostLocal) release(ctx context.Context, sandbox string, _ netip.Addr) error {
	_, err := h.call(ctx, "DEL", sandbox)
	return err
}

// undo does what DEL ends in, without its walk over all files.
func (h *hostLocal) undo(addr netip.Addr) error { return os.Remove(h.file(addr)) }

func (h *hostLocal) close() error { return nil }
