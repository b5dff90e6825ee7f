package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/poolfile"
	"github.com/ipamd/ipamd/internal/term"
)

// An application is the answer of pool apply: a reply for each pool, in order.
type application struct {
	Pools []*api.PoolReply `json:"pools"`
}

func poolApply(c *ctl) *cobra.Command {
	var file, family string
	var ask api.PoolRequest
	var routes, labels, kept []string
	var cooldown, least time.Duration
	var slots api.PoolWarm
	fam, exhausted := newChoice("", "v4", "v6"), newChoice("", "oldest", "strict")
	strategy := newChoice("", "recreate", "on_replenish")
	cmd := &cobra.Command{
		Use:   "apply [POOL]",
		Short: "Make a pool, or change one",
		Long: `Makes a pool be as described, by flags or by a file. With flags what is not
named stays as it is, but that a pool which drains gives again; a flag that is
empty takes its part away. A file describes its pools as a whole, as TOML with a
[[pool]] each and nothing else, or as JSON: {"pool": [{"name": ...}]}. Its keys
are those of PUT /v1/pools/{name}.

A pool grows in place. A change that leaves leases outside of it is refused
without --drain; with it they stay valid until they end, and their addresses are
not given again. Each change raises the generation; a file that names one below
the pool's is refused as stale. -q prints the uids.`,
		Example: `  ipamctl pool apply default --prefix 10.8.64.0/23 --preview
  ipamctl pool apply default --exclude 10.8.64.200-10.8.64.250 --drain
  ipamctl pool apply -f pools.toml --preview -o json`,
		Args:              atMost("the name of a pool"),
		ValidArgsFunction: c.pools,
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if (file == "") == (len(args) == 0) {
				return usageError{message: "pool apply wants either the name of a pool or --file", hint: "see ipamctl pool apply --help"}
			}
			for _, flag := range []string{"prefix", "gateway", "bridge", "exclude", "route", "dns", "reserve", "mtu", "cooldown", "cooldown-min", "exhausted", "label", "warm", "warm-max", "warm-strategy", "generation", "family"} {
				if file != "" && cmd.Flags().Changed(flag) {
					return usageError{message: "--file and --" + flag + " exclude each other", hint: "a file describes its pools as a whole"}
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var pools []poolfile.Pool
			var err error
			if file != "" {
				pools, err = readPools(file, cmd.InOrStdin())
			}
			if err != nil {
				return err
			}
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			if file == "" {
				family = fam.value
				c.about.pool = args[0]
				one, err := changedPool(ctx, ipamd, args[0], family, ask.Prefix)
				if err != nil {
					return err
				}
				was := one.PoolRequest
				slots.Strategy = strategy.value
				overlayWarm(cmd, &one.PoolRequest, slots)
				if err := overlay(cmd, &one.PoolRequest, ask, routes, labels, kept, cooldown, least, exhausted.value); err != nil {
					return err
				}
				if reflect.DeepEqual(one.PoolRequest, was) {
					one.Generation-- // it is so already: that is no change
				}
				pools = []poolfile.Pool{*one}
			}
			done := &application{Pools: []*api.PoolReply{}}
			var refused error
			for _, one := range pools {
				one.Drain, one.Preview = one.Drain || ask.Drain, ask.Preview
				reply, err := ipamd.ApplyPool(ctx, one.Name, one.PoolRequest)
				if err != nil {
					refused = err
					break
				}
				done.Pools = append(done.Pools, reply)
			}
			if refused == nil || len(done.Pools) > 0 {
				if err := c.answerPools(done, done.Pools...); err != nil {
					return err
				}
			}
			return refused
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "read the pools from this `path`; - is the standard input")
	f.StringVar(&ask.Prefix, "prefix", "", "the addresses, a `prefix` such as 10.8.64.0/24")
	f.StringVar(&ask.Gateway, "gateway", "", "the host's own `address` on the bridge, or none")
	f.StringVar(&ask.Bridge, "bridge", "", "the bridge's `name`")
	f.StringArrayVar(&ask.Exclude, "exclude", nil, "never give this `range`, prefix or address; may be repeated")
	f.StringArrayVar(&routes, "route", nil, "a `route` for the sandboxes, 192.0.2.0/24=10.8.64.9; may be repeated")
	f.StringArrayVar(&ask.DNS, "dns", nil, "a name server's `address`; may be repeated")
	f.StringArrayVar(&kept, "reserve", nil, "keep an address for a `sandbox`, db=10.8.64.9; may be repeated")
	f.Int64Var(&ask.MTU, "mtu", 0, "of the sandboxes' interfaces, in `bytes`; 0: the bridge's")
	f.DurationVar(&cooldown, "cooldown", 0, "its own cooldown, a `duration`; 0: the daemon's")
	f.DurationVar(&least, "cooldown-min", 0, "its own cooldown when nothing else is left, a `duration`")
	f.Var(&exhausted, "exhausted", "`what` an exhausted pool does: "+exhausted.want())
	f.StringArrayVar(&labels, "label", nil, "a `label` of the pool, key=value; may be repeated")
	f.Int64Var(&slots.Size, "warm", 0, "keep this `number` of warm slots ready; 0: none")
	f.Int64Var(&slots.Max, "warm-max", 0, "and have this `number` at most, with those under way; 0: the same")
	f.Var(&strategy, "warm-strategy", "`what` becomes of slots of another spec: "+strategy.want())
	f.Int64Var(&ask.Generation, "generation", 0, "the `number` that the pool's generation becomes; 0: the next one")
	f.BoolVar(&ask.Drain, "drain", false, "let leases stand outside of the pool until they end")
	f.BoolVar(&ask.Preview, "preview", false, "show what would become of each lease, and do nothing")
	c.familyFlag(cmd, &fam)
	c.complete(cmd, "exhausted", exhausted.complete)
	c.complete(cmd, "warm-strategy", strategy.complete)
	return cmd
}

// familyFlag says which of two pools of one name a verb is about.
func (c *ctl) familyFlag(cmd *cobra.Command, family *choice) {
	cmd.Flags().Var(family, "family", "which of two pools of this name, a `family`: "+family.want())
	c.complete(cmd, "family", family.complete)
}

// changedPool is the description of a pool as it is, under the next generation, so that
// a change of another in between is not undone; of a name that no pool has, an
// empty one. A prefix says which family is meant where nothing else does.
func changedPool(ctx context.Context, ipamd *client.Client, name, family, prefix string) (*poolfile.Pool, error) {
	if p, err := netip.ParsePrefix(prefix); err == nil && family == "" {
		family = string(api.V6)
		if p.Addr().Is4() {
			family = string(api.V4)
		}
	}
	now, err := poolNamed(ctx, ipamd, name, family)
	var none usageError
	switch {
	case errors.Is(err, client.ErrNotFound), errors.As(err, &none) && prefix != "" && family != "":
		if prefix == "" {
			return nil, usageError{message: "there is no pool " + term.Word(name) + " yet: a new one wants --prefix", field: "prefix",
				hint: "the pools: ipamctl pools"}
		}
		return &poolfile.Pool{Name: name}, nil
	case err != nil:
		return nil, err
	}
	one := &poolfile.Pool{Name: name}
	one.PoolRequest, err = now.Request()
	return one, err
}

// overlay takes over the flags that were given.
func overlay(cmd *cobra.Command, to *api.PoolRequest, from api.PoolRequest, via, labels, kept []string, cooldown, least time.Duration, exhausted string) error {
	routes := []api.Route{}
	for _, r := range nonEmpty(via) {
		destination, by, ok := strings.Cut(r, "=")
		if !ok {
			return usageError{message: fmt.Sprintf("--route %q is not destination=via", r), field: "routes"}
		}
		routes = append(routes, api.Route{Destination: destination, Via: by})
	}
	reserved := []api.PoolReservation{}
	for _, r := range nonEmpty(kept) {
		at := strings.LastIndex(r, "=")
		if at < 1 {
			return usageError{message: fmt.Sprintf("--reserve %q is not sandbox=address", r), field: "reservation"}
		}
		reserved = append(reserved, api.PoolReservation{Sandbox: r[:at], Address: r[at+1:]})
	}
	pairs, err := someLabels(nonEmpty(labels))
	if err != nil {
		return err
	}
	for flag, set := range map[string]func(){
		"prefix":       func() { to.Prefix = from.Prefix },
		"gateway":      func() { to.Gateway = from.Gateway },
		"bridge":       func() { to.Bridge = from.Bridge },
		"exclude":      func() { to.Exclude = nonEmpty(from.Exclude) },
		"route":        func() { to.Routes = routes },
		"dns":          func() { to.DNS = nonEmpty(from.DNS) },
		"reserve":      func() { to.Reservation = reserved },
		"mtu":          func() { to.MTU = from.MTU },
		"cooldown":     func() { to.Cooldown = api.LastingIfAny(cooldown) },
		"cooldown-min": func() { to.CooldownMin = api.LastingIfAny(least) },
		"exhausted":    func() { to.Exhausted = exhausted },
		"label":        func() { to.Labels = pairs },
		"generation":   func() { to.Generation = from.Generation },
	} {
		if cmd.Flags().Changed(flag) {
			set()
		}
	}
	return nil
}

// overlayWarm takes over the flags of warm slots that were given.
func overlayWarm(cmd *cobra.Command, to *api.PoolRequest, from api.PoolWarm) {
	now := api.PoolWarm{}
	if to.Warm != nil {
		now = *to.Warm
	}
	changed := cmd.Flags().Changed
	if changed("warm") {
		if now.Size = from.Size; from.Size == 0 {
			now = api.PoolWarm{}
		}
	}
	if changed("warm-max") {
		now.Max = from.Max
	}
	if changed("warm-strategy") {
		now.Strategy = from.Strategy
	}
	if to.Warm = &now; now == (api.PoolWarm{}) {
		to.Warm = nil
	}
}

// nonEmpty drops the empty ones: --dns "" takes away what there was.
func nonEmpty(all []string) (out []string) {
	for _, s := range all {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

// fileMost bounds a file of pools.
const fileMost = 1 << 20

// readPools reads a file of pools.
func readPools(path string, stdin io.Reader) ([]poolfile.Pool, error) {
	wrong := func(format string, args ...any) error {
		return usageError{message: path + ": " + fmt.Sprintf(format, args...), field: "file",
			hint: "the keys of a [[pool]]: ipamctl pool apply --help"}
	}
	in := stdin
	if path != "-" {
		f, err := os.Open(filepath.Clean(path))
		if err != nil {
			return nil, usageError{message: err.Error(), field: "file"}
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, fileMost+1))
	switch {
	case err != nil:
		return nil, wrong("%v", err)
	case len(text) > fileMost:
		return nil, wrong("is larger than %d bytes", fileMost)
	}
	pools, err := poolfile.Parse(text)
	if err != nil {
		return nil, wrong("%v", err)
	}
	return pools, nil
}
