package docker_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/doctest"
)

// N8: what the pages tell the reader to type works as it stands there, but for the driver's name and
// the image: each network can be made, and a container in it has an address of the network.
func TestN8TheCommandsOfThePages(t *testing.T) {
	w := newWorld(t)
	for page, networks := range map[string]int{"README.md": 1, "docs/DOCKER.md": 2} {
		made, ran := "", 0
		remove := func() {
			if made != "" {
				w.docker("network", "rm", made)
			}
		}
		for _, words := range doctest.Commands(t, page, "docker") {
			line := strings.Join(words, " ")
			switch {
			case words[1] == "network" && words[2] == "create":
				remove()
				at := slices.Index(words, "--ipam-driver")
				if at < 0 || words[at+1] != "ipamd" {
					t.Fatalf("%s: %s does not name the driver", page, line)
				}
				words[at+1] = w.driver
				w.docker(words[1:]...)
				made = words[len(words)-1]
				networks--
				subnet := words[slices.Index(words, "--subnet")+1]
				if out := w.docker("run", "--rm", "--network", made, "box", "busybox", "ip", "addr"); !strings.Contains(out, "inet "+strings.TrimSuffix(subnet, "0/24")) {
					t.Errorf("%s: in the network of %s a container has %s", page, line, out)
				}
			case words[1] == "run":
				at := slices.Index(words, "alpine")
				if at < 0 {
					t.Fatalf("%s: %s runs no alpine", page, line)
				}
				words[at] = "box busybox"
				if out := w.docker(strings.Fields(strings.Join(words[1:], " "))...); !strings.Contains(out, "inet 10.8.64.") {
					t.Errorf("%s: %s shows %s", page, line, out)
				}
				ran++
			}
		}
		remove()
		if networks != 0 || ran != 1 {
			t.Errorf("%s: %d containers were run, and %d networks more or fewer than were there", page, ran, networks)
		}
	}
}
