package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/internal/realtest"
)

var volume = Volume{Section: "1", Source: "box 1.0", Date: time.Unix(1_700_000_000, 0).UTC(), Also: []string{"tin(1)"},
	More: []Part{{"EXIT STATUS", "  0  done"}}}

// box is a command line with every part that a page can have.
func box() *cobra.Command {
	nothing := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "box", Short: "Keep things", Run: nothing,
		Long: "A box keeps things.\nAlways.\n\n  one    a 'table'\n  .two   as it is\n\nAnd \\n is \"two\" letters.", Example: "  box open --now"}
	root.PersistentFlags().StringP("lid", "l", "oak", "the `wood` of it")
	open := &cobra.Command{Use: "open THING", Aliases: []string{"lift"}, Short: "Open it", Long: "Opens it.", Run: nothing, Example: "  box open"}
	open.Flags().Bool("now", false, "at once")
	open.Flags().Bool("secret", false, "not to be shown")
	if err := open.Flags().MarkHidden("secret"); err != nil {
		panic(err)
	}
	topic := &cobra.Command{Use: "colours", Short: "Which there are", Long: "  red\n  green"}
	root.AddCommand(open, topic, &cobra.Command{Use: "trick", Hidden: true, Run: nothing})
	return root
}

// rendered is a page as a person sees it on a wide terminal.
func rendered(t *testing.T, page string) string {
	t.Helper()
	realtest.Need(t, "groff")
	cmd := exec.Command("groff", "-man", "-Tascii", "-ww", "-P-cbou", "-rLL=120n")
	cmd.Stdin = strings.NewReader(page)
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil || wrong.Len() > 0 {
		t.Fatalf("groff: %v %s\n%s", err, wrong.String(), page)
	}
	return string(out)
}

func TestPages(t *testing.T) {
	dir := t.TempDir()
	if err := volume.Write(box(), dir); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string][]string{
		"box": {"box - Keep things", "A box keeps things.  Always.", "  one    a 'table'\n         .two   as it is\n",
			`And \n is "two" letters.`, "-l, --lid wood", "the wood of it (default: oak)", "box-open(1)", "box-colours(1)", "tin(1)", "2023-11-14", "EXIT STATUS", "0  done"},
		"box-open":    {"box-open, box-lift - Open it", "box open THING", "--now", "at once\n", "OPTIONS OF EVERY VERB", "-l, --lid wood", "box(1)"},
		"box-colours": {"         red\n         green\n", "box(1)"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, "man/man1", page+".1"))
		if err != nil {
			t.Fatal(err)
		}
		shown := rendered(t, string(text))
		for _, w := range want {
			if !strings.Contains(shown, w) {
				t.Errorf("%s has not %q:\n%s", page, w, shown)
			}
		}
		for _, hidden := range []string{"secret", "trick", "completion"} {
			if strings.Contains(shown, hidden) {
				t.Errorf("%s names %s", page, hidden)
			}
		}
	}
	for _, file := range []string{"bash/box", "zsh/_box", "fish/box.fish"} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), "__complete") {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err := volume.Alias(dir, "crate", "box"); err != nil {
		t.Fatal(err)
	}
	for name, page := range map[string]string{"box-lift": "box-open", "crate": "box"} {
		text, err := os.ReadFile(filepath.Join(dir, "man/man1", name+".1"))
		if want := ".so man1/" + page + ".1\n"; err != nil || string(text) != want {
			t.Errorf("%s is %q, %v, want %q", name, text, err, want)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "man/man1/*")); len(found) != 5 {
		t.Errorf("pages %v", found)
	}
}

func TestSettings(t *testing.T) {
	shown := rendered(t, volume.settings("box.toml", "settings of a box", "/etc/box.toml", `# All of it,
# like '9s'.

# What it is.
[box]
# Its size.
# 0: any.
size = 7
name = ''
`))
	for _, want := range []string{"BOX.TOML(5)", "box.toml - settings of a box", "All of it, like '9s'.", "[box]\n       What it is.",
		"size = 7\n              Its size.  0: any.", "name = ''"} {
		if !strings.Contains(shown, want) {
			t.Errorf("want %q in\n%s", want, shown)
		}
	}
}

func TestFromArgs(t *testing.T) {
	dir, v, err := FromArgs([]string{"d", "box 1.0", "1700000000"}, "1")
	if err != nil || dir != "d" || v.Source != "box 1.0" || !v.Date.Equal(volume.Date) {
		t.Errorf("%q %+v %v", dir, v, err)
	}
	for _, args := range [][]string{nil, {"d", "s"}, {"d", "s", "today"}} {
		if _, _, err := FromArgs(args, "1"); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
