package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"
)

// N1: a path at which no socket can be is wrong for as long as it stands there, and no reason to ask
// again; one at which none is by now may be a daemon that is down. DEL passes over either.
func TestN1ASocketThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	most := len(unix.RawSockaddrUnix{}.Path) - 1
	long := func(bytes int) string { return w.dir + "/" + strings.Repeat("s", bytes-len(w.dir)-1) }
	box := w.ns.Port("rt0").NS.Path()
	for name, c := range map[string]struct {
		socket, env string
		code        uint
		says        string // before it the key's prefix
	}{
		"too long":                 {long(most + 1), "", types.ErrInvalidNetworkConfig, "socket has 108 bytes"},
		"no path":                  {"s", "", types.ErrInvalidNetworkConfig, `socket is "s"`},
		"too long, by environment": {"", long(most + 1), types.ErrInvalidEnvironmentVariables, "IPAMD_SOCKET has 108 bytes"},
		"no path, by environment":  {"", "s", types.ErrInvalidEnvironmentVariables, `IPAMD_SOCKET is "s"`},
		"as long as it may be":     {long(most), "", types.ErrTryAgainLater, long(most)},
		"the list's comes first":   {w.socket, "s", 0, ""},
	} {
		for _, verb := range []string{"ADD", "CHECK", "GC", "STATUS", "DEL"} {
			for kind, key := range map[string]string{"below": "ipam.", "main": ""} {
				section := fmt.Sprintf(`"pool": "default", "wait": "20ms", "socket": %q`, c.socket)
				conf := `"type": "ipamd", ` + section
				switch {
				case kind == "below" && verb == "STATUS":
					continue // the bridge plugin's own
				case kind == "below":
					conf = `"type": "bridge", "ipam": {"type": "ipamd", ` + section + "}"
				}
				if verb == "GC" {
					conf += `, "cni.dev/valid-attachments": []`
				}
				if verb == "CHECK" {
					conf += `, "prevResult": {"cniVersion": "1.1.0"}`
				}
				want, says := c.code, c.says
				if want == types.ErrInvalidNetworkConfig {
					says = key + says
				}
				switch {
				case verb == "DEL":
					want, says = 0, ""
				case verb == "STATUS" && want == types.ErrTryAgainLater:
					want = types.ErrPluginNotAvailable
				case want == 0 && verb != "GC":
					continue // what they answer of a daemon that is there is another test's
				}
				_, err := w.plugin(verb, `{"cniVersion": "1.1.0", "name": "n", `+conf+"}", "IPAMD_SOCKET="+c.env,
					"CNI_CONTAINERID=c", "CNI_NETNS="+box, "CNI_IFNAME=eth9")
				if (err == nil) != (want == 0) || code(err) != want || err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("%s, %s, %s: %v, want code %d and %s", name, verb, kind, err, want, says)
				}
			}
		}
	}
}
