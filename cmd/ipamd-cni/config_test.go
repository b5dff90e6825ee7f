package main

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

// What is wrong in a configuration is said by its key, as the configuration spells it.
func TestWhatIsWrongIsSaidByItsKey(t *testing.T) {
	const list, below = `{"cniVersion": "1.1.0", "name": "n", "type": "ipamd"`, `{"cniVersion": "1.1.0", "name": "n", "type": "bridge", "ipam": {"type": "ipamd"`
	for name, c := range map[string]struct {
		conf string
		code uint
		says string // "" of one that is right
	}{
		"every key of a list":          {list + `, "pool": "a", "family": "v4", "socket": "/s", "wait": "1s", "gc": true, "capabilities": {}, "args": {}, "dns": {}}`, 0, ""},
		"keys of the protocol":         {list + `, "prevResult": {}, "cni.dev/valid-attachments": [], "cni.dev/attachments": []}`, 0, ""},
		"another case of letters":      {list + `, "Pool": "a"}`, 0, ""},
		"below a main plugin":          {below + `, "pool": "a", "family": "v6", "socket": "/s", "wait": "1s"}, "isGateway": true}`, 0, ""},
		"an unknown key":               {list + `, "wiat": "1s"}`, types.ErrInvalidNetworkConfig, "wiat is a key that ipamd does not know"},
		"one of Go's, and of no list":  {list + `, "ipamSection": {}}`, types.ErrInvalidNetworkConfig, "ipamSection is a key that ipamd does not know"},
		"one with quotes":              {list + `, "wait\"": "1s"}`, types.ErrInvalidNetworkConfig, `wait" is a key that ipamd does not know`},
		"an unknown key below":         {below + `, "gc": true}}`, types.ErrInvalidNetworkConfig, "ipam.gc is a key that ipamd does not know"},
		"a number for a text":          {list + `, "pool": 5}`, types.ErrDecodingFailure, "pool is a number, and has to be a string"},
		"a number for a text below":    {below + `, "pool": 5}}`, types.ErrDecodingFailure, "ipam.pool is a number, and has to be a string"},
		"a text for a truth":           {list + `, "gc": "yes"}`, types.ErrDecodingFailure, "gc is a string, and has to be a bool"},
		"no duration":                  {list + `, "wait": "soon"}`, types.ErrInvalidNetworkConfig, `wait is no duration such as "10s"`},
		"no family, below a main one":  {below + `, "family": "v5"}}`, types.ErrInvalidNetworkConfig, "ipam.family is none of v4, v6 and dual"},
		"a section that is no section": {`{"cniVersion": "1.1.0", "name": "n", "type": "bridge", "ipam": []}`, types.ErrDecodingFailure, "the network's configuration: json: cannot unmarshal array into Go struct field config.NetConf.ipam of type types.IPAM"},
	} {
		_, err := read(&skel.CmdArgs{StdinData: []byte(c.conf)})
		wrong := new(types.Error)
		if errors.As(err, &wrong) != (c.says != "") || wrong.Code != c.code || wrong.Msg != c.says {
			t.Errorf("%s: %d, %q, want %d, %q", name, wrong.Code, wrong.Msg, c.code, c.says)
		}
	}
}
