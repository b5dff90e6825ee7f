package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/ipamd/ipamd/internal/doctest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// N1: the lists of the page work as they stand there, by cnitool, and are those of the package.
func TestN1TheListsOfThePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	lists := doctest.Blocks(t, "docs/CNI.md", "json")
	files := []string{"10-sandboxes.conflist", "10-sandboxes-alone.conflist"}
	if len(lists) != len(files) {
		t.Fatalf("the page has %d lists, and the package %q", len(lists), files)
	}
	for i, text := range lists {
		list, err := libcni.ConfListFromBytes([]byte(text))
		if err != nil {
			t.Errorf("libcni does not read this list: %v\n%s", err, text)
			continue
		}
		packed, err := os.ReadFile(filepath.Join(realtest.Checkout(t), "deploy", "cni", files[i]))
		if err != nil {
			t.Fatal(err)
		}
		var ofPage, ofPackage any
		if err := json.Unmarshal([]byte(text), &ofPage); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(packed, &ofPackage); err != nil || !reflect.DeepEqual(ofPage, ofPackage) {
			t.Errorf("%s of the package is not the page's list: %v\n%s\n%s", files[i], err, packed, text)
		}
		file := filepath.Join(w.conf, files[i])
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		box := nstest.New(t)
		for _, verb := range []string{"add", "check", "del"} {
			out, err := w.cnitool(verb, list.Name, box.Path(), "IPAMD_SOCKET="+w.socket)
			if err != nil {
				t.Errorf("%s by the page's list: %v\n%s", verb, err, text)
			}
			if held := w.leases(); verb == "add" && (len(held) != 1 || !strings.Contains(out, held[0].Address+"/24")) {
				t.Errorf("added by the page's list is %s, leases %+v", out, held)
			}
		}
		w.none("of the page's list")
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// N1: what the pages tell the reader to type names the list that they give, the files that the
// package has, and options that the clients have.
func TestN1TheCommandsOfThePages(t *testing.T) {
	realtest.Need(t, "podman", "ctr")
	name := ""
	for _, text := range doctest.Blocks(t, "docs/CNI.md", "json") {
		list, err := libcni.ConfListFromBytes([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		name = list.Name
	}
	// nerdctl is not to be had here: only the network's name can be held against the list.
	if text, err := os.ReadFile(doctest.Path(t, "docs/CNI.md")); err != nil || !strings.Contains(string(text), "`nerdctl run --network "+name+"`") {
		t.Errorf("docs/CNI.md has no command of nerdctl that names the network %s: %v", name, err)
	}
	seen := make(map[string]int)
	for _, page := range []string{"README.md", "docs/CNI.md"} {
		for _, words := range doctest.Commands(t, page, "podman", "ctr", "cp") {
			line := strings.Join(words, " ")
			if words[0] == "cp" {
				from := strings.TrimPrefix(words[1], "/usr/share/doc/ipamd-cni/examples/")
				if _, err := os.Stat(filepath.Join(realtest.Checkout(t), "deploy", from)); err != nil || words[2] != "/etc/cni/net.d/" {
					t.Errorf("%s: %s: %v", page, line, err)
				}
				seen["cp"]++
				continue
			}
			if words[1] != "run" {
				t.Errorf("%s: %s does not run a container", page, line)
				continue
			}
			seen[words[0]]++
			if at := slices.Index(words, "--network"); at >= 0 && words[at+1] != name || at < 0 && words[0] != "ctr" {
				t.Errorf("%s: %s does not name the network %s", page, line, name)
			}
			help, err := exec.Command(words[0], "run", "--help").CombinedOutput()
			if err != nil {
				t.Fatalf("%s run --help: %v: %s", words[0], err, help)
			}
			for _, word := range words[2:] {
				if option, _, _ := strings.Cut(word, "="); strings.HasPrefix(option, "--") && !slices.Contains(strings.FieldsFunc(string(help), func(r rune) bool { return strings.ContainsRune(" ,\t\n", r) }), option) {
					t.Errorf("%s: %s: %s run has no option %s", page, line, words[0], option)
				}
			}
		}
	}
	if seen["podman"] < 2 || seen["ctr"] < 1 || seen["cp"] < 1 {
		t.Errorf("found were %v: are the commands still where they were?", seen)
	}
}

// N6: below the reference bridge a wish in CNI_ARGS reaches ipamd as the page writes it. Without the
// word that the page says the bridge refuses it itself.
func TestN6TheWishOfThePage(t *testing.T) {
	t.Parallel()
	const wish, word = "IP=10.8.64.77", "IgnoreUnknown=1;"
	commands := doctest.Commands(t, "docs/CNI.md", "CNI_ARGS='"+word+wish+"'")
	if len(commands) != 1 || len(commands[0]) != 5 {
		t.Fatalf("the commands of the page with %s%s are %q", word, wish, commands)
	}
	w, box := newWorld(t, "10.8.64.0/24", ""), nstest.New(t)
	verb, name := commands[0][2], commands[0][3]
	w.network(name, "1.0.0", "")
	if out, err := w.cnitool(verb, name, box.Path(), "CNI_ARGS="+wish); err == nil || !strings.Contains(out+err.Error(), "unknown args") {
		t.Errorf("%s: %s, %v: does the bridge know it now?", wish, out, err)
	}
	out, err := w.cnitool(verb, name, box.Path(), "CNI_ARGS="+word+wish)
	if got, _ := addressOf(out); err != nil || got != "10.8.64.77" {
		t.Errorf("%s%s: %s, %v", word, wish, out, err)
	}
	if _, err := w.cnitool("del", name, box.Path(), "CNI_ARGS="+word+wish); err != nil {
		t.Error(err)
	}
	w.none("of the page's wish")
}
