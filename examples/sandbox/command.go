package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
)

// An exitError is the exit code of a command inside of a sandbox, which
// becomes our own.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("the command inside ended with %d", int(e)) }

// command is the command line.
func command() *cobra.Command {
	var cfg Config
	root := &cobra.Command{
		Use:           "sandbox",
		Short:         "Run busybox containers with addresses from ipamd",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	f := root.PersistentFlags()
	f.StringVar(&cfg.Containerd, "containerd", "/run/containerd/containerd.sock", "`path` of containerd's socket")
	f.StringVar(&cfg.Namespace, "namespace", "sandbox", "containerd `namespace` of the containers")
	f.StringVar(&cfg.Socket, "socket", api.DefaultSocket, "`path` of ipamd's socket")
	f.StringVar(&cfg.Rootfs, "rootfs", "/var/lib/sandbox/rootfs", "`folder` that all sandboxes see as /; made when missing")
	f.StringVar(&cfg.Cgroup, "cgroup", cmp.Or(os.Getenv("SANDBOX_CGROUP"), "/sandbox"), "parent `cgroup` of the sandboxes; SANDBOX_CGROUP sets it too")

	with := func(cmd *cobra.Command, verb func(*Runtime) error) error {
		r, err := Open(cfg)
		if err != nil {
			return err
		}
		defer r.Close()
		return verb(r)
	}
	root.AddCommand(
		&cobra.Command{
			Use:   "run NAME [-- COMMAND...]",
			Short: "Start a sandbox; it sleeps when no command is given",
			Args:  cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return with(cmd, func(r *Runtime) error {
					given, err := r.Run(cmd.Context(), args[0], args[1:])
					if err == nil {
						printAllocation(cmd.OutOrStdout(), args[0], given)
					}
					return err
				})
			},
		},
		&cobra.Command{
			Use:   "rm NAME",
			Short: "Remove a sandbox, and then release its address",
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return with(cmd, func(r *Runtime) error {
					leases, err := r.Remove(cmd.Context(), args[0])
					for _, l := range leases {
						fmt.Fprintf(cmd.OutOrStdout(), "%s is gone; %s is %s\n", args[0], l.Address, l.State)
					}
					return err
				})
			},
		},
		&cobra.Command{
			Use:   "ps",
			Short: "List the sandboxes",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return with(cmd, func(r *Runtime) error {
					all, err := r.List(cmd.Context())
					if err != nil {
						return err
					}
					return printSandboxes(cmd.OutOrStdout(), all)
				})
			},
		},
		&cobra.Command{
			Use:   "exec NAME -- COMMAND...",
			Short: "Run a command inside; its exit code becomes this one's",
			Args:  cobra.MinimumNArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return with(cmd, func(r *Runtime) error {
					code, err := r.Exec(cmd.Context(), args[0], args[1:], cmd.OutOrStdout(), cmd.ErrOrStderr())
					if err == nil && code != 0 {
						err = exitError(code)
					}
					return err
				})
			},
		},
	)
	return root
}

func printAllocation(out io.Writer, name string, given *api.AllocateReply) {
	l := given.Leases[0]
	fmt.Fprintf(out, "%s runs with %s/%d, lease %s\n", name, l.Address, l.PrefixLen, l.ID)
	for _, s := range given.Skipped {
		fmt.Fprintf(out, "passed over %s, which is in use:\n", s.Address)
		for _, e := range s.Evidence {
			fmt.Fprintf(out, "  seen by witness %s%s%s%s\n", e.Witness,
				maybe(" in container ", e.Container), maybe(" on port ", e.Port), maybe(" with MAC ", e.MAC))
		}
	}
}

func maybe(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

func printSandboxes(out io.Writer, all []Sandbox) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tADDRESS\tTASK\tLEASE")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, s.Address, s.Task, s.Lease)
	}
	return w.Flush()
}
