package main

import (
	"strings"
	"testing"
)

const measured = `# a day of November
# a machine
what,of,at,median,least,most,unit
allocate,leases,0,500.0,400.0,600.0,µs
allocate,leases,1000,510.0,500.0,530.0,µs
release,leases,0,600.0,600.0,600.0,µs
"a pass, processor time",ports,10,12.1,10.3,15.8,ms
`

func TestPicture(t *testing.T) {
	machine, curves, err := read(strings.NewReader(measured))
	if err != nil {
		t.Fatal(err)
	}
	if len(curves) != 3 || len(curves[0].XYs) != 2 || curves[0].YErrors[1].High != 20 || curves[2].unit != "ms" {
		t.Errorf("read %+v", curves)
	}
	var svg strings.Builder
	if err := picture(&svg, machine, curves); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"</svg>", "allocate", "release", "a pass, processor time", "leases", "ports", "a day of November", "a machine"} {
		if !strings.Contains(svg.String(), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

func TestNoCurves(t *testing.T) {
	for _, text := range []string{"", "allocate,leases,0,1,1,1,µs\nallocate,leases,1,1,1,1,µs\n", "# a day\nwhat,of,at,median,least,most,unit\n", "# a day\na,b,c,d,e,f,g\nx,y,1,2,three,4,z\n"} {
		if _, _, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%q was taken for curves", text)
		}
	}
}
