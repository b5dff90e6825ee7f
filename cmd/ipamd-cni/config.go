package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
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
	RuntimeConfig runtimeConfig `json:"runtimeConfig"`
	Args          struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
	ipam    ipamSection
	macFrom source // of the MAC that is wanted; zero without one
	main    bool   // it plugs containers in itself
	listed  bool   // in the list of plugins, not below one
	wait    time.Duration
	valid   map[types.GCAttachment]bool // of a GC; nil when the runtime names none
}

// A runtimeConfig is what the runtime gives of the capabilities that the list declares.
type runtimeConfig struct {
	IPs []string `json:"ips"`
	MAC string   `json:"mac"`
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

// read reads a call's configuration. What ipamd does not know in it is an error: what it asks
// for would silently not be done.
func read(args *skel.CmdArgs) (*config, error) {
	c, wrong := decode(args)
	if wrong != nil {
		return nil, wrong
	}
	return c, nil
}

// readAnyway is read for a DEL and a GC. A list may have been edited since its attachments were
// made, and they have to come down all the same: what is wrong in it is logged, and passed over.
func readAnyway(args *skel.CmdArgs) *config {
	c, wrong := decode(args)
	if wrong != nil {
		fmt.Fprintf(os.Stderr, "ipamd: %v: passed over, to take down what there is\n", wrong)
	}
	return c
}

// decode returns what can be read of a configuration, and the first thing that is wrong with it.
func decode(args *skel.CmdArgs) (c *config, first error) {
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	var raw struct {
		Type    string          `json:"type"`
		IPAM    json.RawMessage `json:"ipam"`
		Runtime json.RawMessage `json:"runtimeConfig"`
	}
	var below struct {
		Type string `json:"type"`
	}
	c = &config{wait: defaultWait}
	for _, into := range []any{&raw, c} {
		if err := json.Unmarshal(args.StdinData, into); err != nil {
			note(types.NewError(types.ErrDecodingFailure, "the network's configuration: "+err.Error(), ""))
		}
	}
	if len(raw.IPAM) > 0 {
		if err := json.Unmarshal(raw.IPAM, &below); err != nil {
			note(types.NewError(types.ErrDecodingFailure, "ipam: "+err.Error(), ""))
		}
	}
	// The runtime names the program by its type: it is one of the list, or below one.
	if c.listed = below.Type == "" || below.Type == raw.Type; c.listed {
		s := listedSection{}
		note(strictly(args.StdinData, &s, ""))
		c.ipam, c.main = s.ipamSection, !s.GC
	} else {
		note(strictly(raw.IPAM, &c.ipam, "ipam."))
	}
	note(c.capabilities(raw.Runtime))
	note(c.socketCannotBe())
	switch api.Family(c.ipam.Family) {
	case "", api.V4, api.V6, api.Dual:
	default:
		note(wrong(c.key("family"), "is none of v4, v6 and dual"))
	}
	if c.ipam.Wait != "" {
		d, err := time.ParseDuration(c.ipam.Wait)
		if err != nil || d < 0 {
			note(wrong(c.key("wait"), `is no duration such as "10s"`))
		} else {
			c.wait = d
		}
	}
	return c, first
}

// attachments reads which attachments a runtime names as valid. One that names none at all leaves
// them nil; null is its empty list.
func (c *config) attachments(args *skel.CmdArgs) error {
	var raw struct {
		Valid json.RawMessage `json:"cni.dev/valid-attachments"`
	}
	var valid []types.GCAttachment
	err := json.Unmarshal(args.StdinData, &raw)
	if err == nil && len(raw.Valid) > 0 {
		err = json.Unmarshal(raw.Valid, &valid)
		c.valid = make(map[types.GCAttachment]bool)
	}
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, "cni.dev/valid-attachments: "+err.Error(), "")
	}
	for _, a := range valid {
		c.valid[a] = true
	}
	return nil
}

// capabilities refuses what the runtime gives of a capability that ipamd cannot act on: a runtime
// gives what the list declares for this plugin, and expects it done. Below a main plugin all but what
// is of addresses is that plugin's.
func (c *config) capabilities(section json.RawMessage) error {
	var given map[string]json.RawMessage
	if len(section) == 0 || json.Unmarshal(section, &given) != nil { // an error has been noted
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		known := name == "ips" || name == "mac"
		switch {
		case c.main && !known:
			return wrong("runtimeConfig."+name, "is of a capability that ipamd does not have: declare it for the plugin that does, behind ipamd in the list")
		case c.listed && !c.main:
			return wrong("runtimeConfig."+name, `is of a capability, and with "gc" ipamd collects garbage alone: declare it for the plugin that has it`)
		case !c.listed && name == "ipRanges":
			return wrong("runtimeConfig."+name, "is of a capability that ipamd does not have: an address comes from the pool, and a certain one is asked for with ips")
		}
	}
	return nil
}

// key is a key of ours as the configuration spells it.
func (c *config) key(name string) string {
	if c.listed {
		return name
	}
	return "ipam." + name
}

// strictly decodes one section, which has no other key than those of into. What it does not know keeps it from nothing that it does.
func strictly(section []byte, into any, prefix string) error {
	err := json.Unmarshal(section, into)
	if e := new(json.UnmarshalTypeError); errors.As(err, &e) && e.Field != "" {
		// Of what is embedded in the section's struct the field has that struct's name before it.
		return types.NewError(types.ErrDecodingFailure, prefix+strings.TrimPrefix(e.Field, "ipamSection.")+" is a "+e.Value+", and has to be a "+e.Type.String(), "")
	}
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, cmp.Or(strings.TrimSuffix(prefix, "."), "the network's configuration")+": "+err.Error(), "")
	}
	var keys map[string]json.RawMessage
	_ = json.Unmarshal(section, &keys) // it was read once
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !knows(reflect.TypeOf(into).Elem(), key) {
			return wrong(prefix+key, "is a key that ipamd does not know")
		}
	}
	return nil
}

// knows reports whether a section has a key, which encoding/json takes in any case of letters.
func knows(section reflect.Type, key string) bool {
	return slices.ContainsFunc(reflect.VisibleFields(section), func(f reflect.StructField) bool {
		name := f.Tag.Get("json")
		return name != "" && strings.EqualFold(name, key)
	})
}

// wrong is an error of the configuration, which begins with the key.
func wrong(key, why string) error { return keyed(key).wrong(why) }
