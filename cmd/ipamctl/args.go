package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// exactly wants one argument, which what describes for the person who left
// it out.
func exactly(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return fmt.Errorf("%s wants one argument, %s", cmd.CommandPath(), what)
		}
		return nil
	}
}

// atMost takes one argument or none.
func atMost(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 1 && args[0] == "" {
			return fmt.Errorf("%s wants at most one argument, %s", cmd.CommandPath(), what)
		}
		return nil
	}
}

// nothing takes no argument.
func nothing(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, not %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// anAddress reads an argument that must be an IP address.
func anAddress(arg string) (string, error) {
	wrong := func(what, hint string) (string, error) {
		return "", usageError{message: fmt.Sprintf("ip: %q %s", arg, what), hint: hint, field: "ip"}
	}
	if p, err := netip.ParsePrefix(arg); err == nil {
		return wrong("is a prefix, not one address",
			fmt.Sprintf("one address is %s; all of the prefix: ipamctl map --within %s", p.Addr(), p.Masked()))
	}
	addr, err := netip.ParseAddr(arg)
	switch {
	case err != nil:
		return wrong("is not an IP address", "for a sandbox or a lease: ipamctl show "+term.Word(arg))
	case addr.Zone() != "":
		return wrong("has a zone, and a pool's addresses have none", "write "+addr.WithZone("").String())
	case addr.Is4In6():
		return wrong("is IPv4 inside IPv6", "write "+addr.Unmap().String())
	}
	return addr.String(), nil
}

// looksLikeLease reports whether arg has the form of a lease id. A sandbox
// may be called so too; callers try the lease first.
func looksLikeLease(arg string) bool {
	_, err := uuid.Parse(arg)
	return err == nil && len(arg) == 36
}

// someContainers reads namespace/id pairs. Neither part may hold a slash in
// containerd.
func someContainers(flag string, args []string) ([]api.Container, error) {
	var containers []api.Container
	for _, arg := range args {
		namespace, id, ok := strings.Cut(arg, "/")
		if !ok || namespace == "" || id == "" || strings.Contains(id, "/") {
			return nil, usageError{message: fmt.Sprintf("%s %q is not namespace/id", flag, arg)}
		}
		containers = append(containers, api.Container{Namespace: namespace, ID: id})
	}
	return containers, nil
}

// someLabels reads key=value pairs; a key may be given once.
func someLabels(args []string) (map[string]string, error) {
	if len(args) == 0 {
		return nil, nil
	}
	labels := map[string]string{}
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		if !ok || key == "" {
			return nil, usageError{message: fmt.Sprintf("--label %q is not key=value", arg)}
		}
		if _, twice := labels[key]; twice {
			return nil, usageError{message: fmt.Sprintf("--label %q is given twice", key)}
		}
		labels[key] = value
	}
	return labels, nil
}

// A choice is a flag with a closed set of values. The first is the default;
// it may be empty, which stands for "not given".
type choice struct {
	value   string
	allowed []string
}

func newChoice(allowed ...string) choice { return choice{value: allowed[0], allowed: allowed} }

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "choice" }

func (c *choice) Set(s string) error {
	if s == "" || !slices.Contains(c.allowed, s) {
		return fmt.Errorf("want %s", c.want())
	}
	c.value = s
	return nil
}

// want lists the values in a sentence.
func (c *choice) want() string {
	words := c.words()
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func (c *choice) words() []string {
	return slices.DeleteFunc(slices.Clone(c.allowed), func(s string) bool { return s == "" })
}

func (c *choice) complete(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return c.words(), cobra.ShellCompDirectiveNoFileComp
}
