package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
)

// Defaults of the section ipam.
const (
	defaultWait = 10 * time.Second // for a daemon that is not ready; runtimes give a plugin a minute or more
	releaseWait = 2 * time.Second  // at most, of a DEL: what it does not reach, the daemon finds
)

// An ipamSection is what a network's configuration says to ipamd, below "ipam" or, of a
// plugin of the list, beside its type.
type ipamSection struct {
	Type   string `json:"type"`
	Pool   string `json:"pool"`   // "": the daemon's first
	Family string `json:"family"` // v4, v6 or dual; "": v4 where the pool has it
	Socket string `json:"socket"` // "": /run/ipamd/ipamd.sock
	Wait   string `json:"wait"`   // how long ADD waits for a daemon that is not ready
}

// A config is one call's.
type config struct {
	types.NetConf
	RuntimeConfig struct {
		IPs []string `json:"ips"`
		MAC string   `json:"mac"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
	ipam   ipamSection
	main   bool // it plugs containers in itself
	listed bool // in the list of plugins, not below one
	wait   time.Duration
	valid  map[types.GCAttachment]bool // of a GC; nil when the runtime names none
}

// What a plugin of the list may find beside its own keys: the protocol's.
type listedSection struct {
	CNIVersion    json.RawMessage `json:"cniVersion"`
	Name          json.RawMessage `json:"name"`
	Capabilities  json.RawMessage `json:"capabilities"`
	RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	Args          json.RawMessage `json:"args"`
	DNS           json.RawMessage `json:"dns"`
	PrevResult    json.RawMessage `json:"prevResult"`
	Valid         json.RawMessage `json:"cni.dev/valid-attachments"`
	Attachments   json.RawMessage `json:"cni.dev/attachments"`
	GC            bool            `json:"gc"` // beside another main plugin: it does nothing else
	ipamSection
}

// read reads a call's configuration. An unknown key is an error: what it asks
// for would silently not be done.
func read(args *skel.CmdArgs) (*config, error) {
	var raw struct {
		Type  string          `json:"type"`
		IPAM  json.RawMessage `json:"ipam"`
		Valid json.RawMessage `json:"cni.dev/valid-attachments"`
	}
	c := &config{wait: defaultWait}
	for _, into := range []any{&raw, c} {
		if err := json.Unmarshal(args.StdinData, into); err != nil {
			return nil, types.NewError(types.ErrDecodingFailure, "the network's configuration: "+err.Error(), "")
		}
	}
	var below struct {
		Type string `json:"type"`
	}
	if len(raw.IPAM) > 0 {
		if err := json.Unmarshal(raw.IPAM, &below); err != nil {
			return nil, types.NewError(types.ErrDecodingFailure, "ipam: "+err.Error(), "")
		}
	}
	// The runtime names the program by its type: it is one of the list, or below one.
	if c.listed = below.Type == "" || below.Type == raw.Type; c.listed {
		s := listedSection{}
		if err := strictly(args.StdinData, &s, ""); err != nil {
			return nil, err
		}
		c.ipam, c.main = s.ipamSection, !s.GC
	} else if err := strictly(raw.IPAM, &c.ipam, "ipam."); err != nil {
		return nil, err
	}
	switch api.Family(c.ipam.Family) {
	case "", api.V4, api.V6, api.Dual:
	default:
		return nil, wrong(c.key("family"), "is none of v4, v6 and dual")
	}
	if c.ipam.Wait != "" {
		d, err := time.ParseDuration(c.ipam.Wait)
		if err != nil || d < 0 {
			return nil, wrong(c.key("wait"), `is no duration such as "10s"`)
		}
		c.wait = d
	}
	if len(raw.Valid) > 0 { // null is a runtime's empty list
		c.valid = make(map[types.GCAttachment]bool)
		for _, a := range c.ValidAttachments {
			c.valid[a] = true
		}
	}
	return c, nil
}

// key is a key of ours as the configuration spells it.
func (c *config) key(name string) string {
	if c.listed {
		return name
	}
	return "ipam." + name
}

// strictly decodes one section, which has no other key than those of into.
func strictly(section []byte, into any, prefix string) error {
	d := json.NewDecoder(bytes.NewReader(section))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		return nil
	}
	if _, name, is := strings.Cut(err.Error(), "unknown field "); is {
		return wrong(prefix+strings.Trim(name, `"`), "is a key that ipamd does not know")
	}
	if e := new(json.UnmarshalTypeError); errors.As(err, &e) && e.Field != "" {
		return types.NewError(types.ErrDecodingFailure, prefix+e.Field+" is a "+e.Value+", and has to be a "+e.Type.String(), "")
	}
	return types.NewError(types.ErrDecodingFailure, cmp.Or(strings.TrimSuffix(prefix, "."), "the network's configuration")+": "+err.Error(), "")
}

// wrong is an error of the configuration, which begins with the key.
func wrong(key, why string) error {
	return types.NewError(types.ErrInvalidNetworkConfig, key+" "+why, "")
}
