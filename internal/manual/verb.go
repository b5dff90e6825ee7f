package manual

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// verb is the page of one command, made of what its --help says.
func (v Volume) verb(cmd *cobra.Command) string {
	p := v.page(dashed(cmd), v.Section, cmd.Short, aliases(cmd)...)
	if cmd.Runnable() {
		p.section("SYNOPSIS")
		p.request("B", cmd.UseLine())
	}
	p.section("DESCRIPTION")
	p.text(cmd.Long)
	if cmd.Runnable() {
		p.options("OPTIONS", cmd.NonInheritedFlags())
		p.options("OPTIONS OF EVERY VERB", cmd.InheritedFlags())
	}
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.text(cmd.Example)
	}
	if verbs := pages(cmd); len(verbs) > 0 {
		p.section("VERBS")
		for _, sub := range verbs {
			p.line(".TP")
			p.line(v.reference(sub))
			p.line(escape(sub.Short))
		}
	}
	if !cmd.HasParent() {
		for _, part := range v.More {
			p.section(part.Title)
			p.text(part.Text)
		}
	}
	p.section("SEE ALSO")
	if cmd.HasParent() {
		p.line(v.reference(cmd.Parent()))
	} else {
		p.line(escape(strings.Join(v.Also, ", ")))
	}
	return p.String()
}

func (p *page) options(title string, flags *pflag.FlagSet) {
	first := true
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if first {
			p.section(title)
			first = false
		}
		value, usage := pflag.UnquoteUsage(f)
		option := bold("--" + f.Name)
		if f.Shorthand != "" {
			option = bold("-"+f.Shorthand) + ", " + option
		}
		if value != "" {
			option += ` \fI` + escape(value) + `\fR`
		}
		p.line(".TP")
		p.line(option)
		p.line(escape(usage))
		if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
			p.line("(default: " + escape(f.DefValue) + ")")
		}
	})
}

func bold(text string) string { return `\fB` + escape(text) + `\fR` }

// reference names a page as one page names another.
func (v Volume) reference(cmd *cobra.Command) string {
	return bold(dashed(cmd)) + "(" + v.Section + ")"
}

func dashed(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// aliases are the further names of a command's page.
func aliases(cmd *cobra.Command) (names []string) {
	for _, alias := range cmd.Aliases {
		names = append(names, dashed(cmd.Parent())+"-"+alias)
	}
	return names
}

// pages are the verbs and topics below a command that have a page of their
// own. What completion would print is installed, and help is in every page.
func pages(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool {
		return sub.Hidden || sub.Name() == "help" || sub.Name() == "completion"
	})
}
