package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ipamd/ipamd/bench/peers"
)

// mostCNI is how many addresses are taken in the larger of the two measurements.
const mostCNI = 10_000

// byCNI measures ADD of ipamd's plugin beside host-local's, each the program that a
// runtime starts for it. ipamd's takes one sync, of the lease and its bind, and looks
// into the namespace; host-local's syncs nothing.
func byCNI(r *run) func() []ratio {
	prefix, most := netip.MustParsePrefix(largePool), min(r.leases, mostCNI)
	folder := func() string { return must(os.MkdirTemp(r.dir, "cni-")) }
	ours := func(taken int) call {
		d := r.start(setup{ports: 1})
		d.fill(taken)
		// Its port is none of rt0, so that each DEL is confirmed at once.
		d.ns.Bridge("aside")
		return peerCall(&plugin{program: r.cni, netns: d.ns.Port("aside").NS.Path(), conf: must(json.Marshal(map[string]any{
			"cniVersion": "1.0.0", "name": "bench", "type": "bridge",
			"ipam": map[string]any{"type": "ipamd", "socket": filepath.Join(d.folder, "sock")},
		}))}, prefix, 0)
	}
	theirs := func(taken int) call {
		return peerCall(peers.HostLocal(r, r.plugin, folder(), prefix, taken), prefix, taken)
	}
	empty, full, theirEmpty, theirFull := ours(0), ours(most), theirs(0), theirs(most)
	starts := func(program string) call {
		return call{do: func() error {
			cmd := exec.Command(program)
			cmd.Env = []string{"CNI_COMMAND=VERSION"}
			cmd.Stdin = strings.NewReader(`{"cniVersion": "1.0.0"}`)
			return cmd.Run()
		}}
	}
	byTurns(turn, empty, full, theirEmpty) // warm
	return func() []ratio {
		t := byTurns(4*turn, empty, theirEmpty, starts(r.cni), starts(r.plugin), r.yardF(), r.yardR())
		u := byTurns(turn, full, theirFull)
		p50 := func(i int) time.Duration { return t[i].do.p50() }
		return []ratio{took(p50(0), p50(1)), took(p50(2)+p50(4)+p50(5), p50(1)), took(p50(3), p50(1)), took(u[0].do.p50(), u[1].do.p50())}
	}
}

// A plugin is ipamd's for callers of CNI, started for each call.
type plugin struct {
	program, netns string
	conf           []byte
}

func (p *plugin) run(verb, sandbox string) ([]byte, error) {
	cmd := exec.Command(p.program)
	cmd.Stdin = bytes.NewReader(p.conf)
	cmd.Env = []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + sandbox, "CNI_IFNAME=eth0",
		"CNI_NETNS=" + p.netns, "CNI_PATH=" + filepath.Dir(p.program)}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ipamd-cni %s %s: %w: %s", verb, sandbox, err, out)
	}
	return out, nil
}

func (p *plugin) Allocate(sandbox string) (netip.Addr, error) {
	out, err := p.run("ADD", sandbox)
	if err != nil {
		return netip.Addr{}, err
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.IPs) != 1 {
		return netip.Addr{}, fmt.Errorf("read the result of ipamd-cni: %v: %s", err, out)
	}
	return result.IPs[0].Address.Addr(), nil
}

func (p *plugin) Undo(sandbox string, _ netip.Addr) error {
	_, err := p.run("DEL", sandbox)
	return err
}
