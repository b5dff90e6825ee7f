package main

import (
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ranges"
)

// A source is a key of the configuration, or a variable, that says what a caller wants.
type source struct {
	name string
	code uint // of the error of what is wrong in it
}

func keyed(name string) source    { return source{name, types.ErrInvalidNetworkConfig} }
func variable(name string) source { return source{name, types.ErrInvalidEnvironmentVariables} }

// wrong is an error of the source, which begins with its name.
func (s source) wrong(why string) error { return types.NewError(s.code, s.name+" "+why, "") }

// wishes returns what to ask the daemon for, an address each: what the runtime wants
// (runtimeConfig.ips, args.cni.ips, CNI_ARGS IP=; the first that says anything), and
// what the network's families lack beside that. An address that is wanted comes first, so
// that one which is refused costs no other.
func (c *config) wishes(a podArgs) ([]api.AllocateRequest, error) {
	for _, of := range []struct {
		from   source
		wanted []string
	}{
		{keyed("runtimeConfig.ips"), c.RuntimeConfig.IPs},
		{keyed("args.cni.ips"), c.Args.CNI.IPs},
		{variable("IP of CNI_ARGS"), strings.FieldsFunc(string(a.IP), func(r rune) bool { return r == ',' })},
	} {
		if len(of.wanted) > 0 {
			return c.wanted(of.from, of.wanted)
		}
	}
	return []api.AllocateRequest{{Pool: c.ipam.Pool, Family: api.Family(c.ipam.Family)}}, nil
}

func (c *config) wanted(from source, wanted []string) (out []api.AllocateRequest, err error) {
	lacks := []api.Family{api.V4, api.V6}
	if f := api.Family(c.ipam.Family); f != api.Dual {
		lacks = nil
	}
	for _, text := range wanted {
		addr, err := ranges.Bare(strings.TrimSpace(text))
		if err != nil {
			return nil, from.wrong("has " + text + ", which is no IP address")
		}
		family := api.V4
		if addr.Is6() {
			family = api.V6
		}
		if f := api.Family(c.ipam.Family); f != "" && f != api.Dual && f != family {
			return nil, from.wrong("has " + text + ", and the network's family is " + c.ipam.Family)
		}
		if slices.ContainsFunc(out, func(r api.AllocateRequest) bool { return r.Family == family }) {
			return nil, from.wrong("has two addresses of one family: an interface has one of each")
		}
		lacks = slices.DeleteFunc(lacks, func(f api.Family) bool { return f == family })
		out = append(out, api.AllocateRequest{Pool: c.ipam.Pool, Family: family, Address: addr.String()})
	}
	for _, f := range lacks {
		out = append(out, api.AllocateRequest{Pool: c.ipam.Pool, Family: f})
	}
	return out, nil
}
