package main

import (
	"context"
	"encoding/csv"
	"errors"
	"image/color"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Where the curves have their points.
var (
	leasesAt = []int{0, 1000, 5000, 10_000, 20_000, 30_000, 45_000, 60_000}
	portsAt  = []int{10, 30, 100, 300, 600, 1000}
)

// A curve is how something grows with a count: the median of some rounds, with the
// least and the largest.
type curve struct {
	what, of, unit string
	plotter.XYs
	plotter.YErrors
}

func (c *curve) add(at int, rounds []float64) {
	m := median(rounds)
	c.XYs = append(c.XYs, plotter.XY{X: float64(at), Y: m})
	c.YErrors = append(c.YErrors, struct{ Low, High float64 }{m - slices.Min(rounds), slices.Max(rounds) - m})
}

// grow measures the curves and writes them to path.csv and path.svg.
func (b *bench) grow(ctx context.Context, path string, leases, ports []int) error {
	about, err := b.about()
	if err != nil {
		return err
	}
	r := &run{bench: b, ctx: ctx}
	var curves []*curve
	err = r.do(func() { curves = append(r.growLeases(leases), r.growPorts(ports)) })
	if err = errors.Join(err, r.close()); err != nil {
		return err
	}
	return errors.Join(writeCurves(path+".csv", about, curves), drawCurves(path+".svg", about, curves))
}

// growLeases asks one daemon with ever more leases, and F + R by turns with it.
func (r *run) growLeases(at []int) []*curve {
	d := r.start(setup{ports: r.ports})
	c := d.caller()
	byTurns(r.calls, c.call()) // warm
	curves := []*curve{{what: "F + R", unit: "µs"}, {what: "allocate", unit: "µs"}, {what: "release", unit: "µs"}, {what: "resident", unit: "MB"}}
	held := 0
	for _, n := range at {
		d.fill(n - held)
		held = n
		var rounds [4][]float64
		for range r.rounds {
			t := byTurns(r.calls, r.yardF(), r.yardR(), c.call())
			for i, took := range []time.Duration{t[0].do.p50() + t[1].do.p50(), t[2].do.p50(), t[2].undo.p50()} {
				rounds[i] = append(rounds[i], float64(took)/float64(time.Microsecond))
			}
			rounds[3] = append(rounds[3], resident(d.pid())/1e6)
		}
		for i, c := range curves {
			c.of = "leases"
			c.add(n, rounds[i])
		}
	}
	return curves
}

// growPorts has passes made over ever more ports, each with a container and a
// bound lease, which all agree.
func (r *run) growPorts(at []int) *curve {
	n := r.runner()
	c := &curve{what: "a pass, processor time", of: "ports", unit: "ms"}
	there := 0
	for _, ports := range at {
		n.boxes(ports-there, false)
		there = ports
		n.agree(ports)
		var passes []float64
		for range r.rounds {
			passes = append(passes, float64(onProcessor(n.pid(), func() { check(n.pass(0)) }))/float64(time.Millisecond))
		}
		c.add(ports, passes)
	}
	return c
}

// writeCurves writes what they were measured on, as comments, and a line a point.
func writeCurves(path, about string, curves []*curve) error {
	var out strings.Builder
	for line := range strings.Lines(about + "\n") {
		out.WriteString("# " + line)
	}
	lines := [][]string{{"what", "of", "at", "median", "least", "most", "unit"}}
	for _, c := range curves {
		for i, p := range c.XYs {
			line := []string{c.what, c.of}
			for _, v := range []float64{p.X, p.Y, p.Y - c.YErrors[i].Low, p.Y + c.YErrors[i].High} {
				line = append(line, strconv.FormatFloat(v, 'f', -1, 64))
			}
			lines = append(lines, append(line, c.unit))
		}
	}
	if err := csv.NewWriter(&out).WriteAll(lines); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(out.String()), 0o644)
}

// drawCurves draws the curves of one unit into one panel, the panels beside each
// other, and below them what they were measured on.
func drawCurves(path, about string, curves []*curve) error {
	var panels []*plot.Plot
	unit, colour := "", 0
	for _, c := range curves {
		if unit != c.unit {
			unit, colour = c.unit, 0
			p := plot.New()
			p.X.Label.Text, p.Y.Label.Text = c.of, c.unit
			p.Legend.Left, p.Legend.Top = true, true
			p.Add(plotter.NewGrid())
			panels = append(panels, p)
		}
		if err := c.draw(panels[len(panels)-1], colour); err != nil {
			return err
		}
		colour++
	}
	const width, height, line = 11 * vg.Centimeter, 9.5 * vg.Centimeter, 11 * vg.Length(1)
	machine := strings.Split(about, "\n")
	canvas := vgsvg.New(width*vg.Length(len(panels)), height)
	canvas.SetColor(color.White) // readers have dark pages too
	canvas.Fill(vg.Rectangle{Max: vg.Point{X: width * vg.Length(len(panels)), Y: height}}.Path())
	below := vg.Length(len(machine)+1) * line
	area := draw.New(canvas)
	style := draw.TextStyle{Color: color.Gray{Y: 0x55}, Font: font.From(plot.DefaultFont, line*4/5), Handler: plot.DefaultTextHandler}
	for i, text := range machine {
		area.FillText(style, vg.Point{X: vg.Centimeter / 2, Y: below - vg.Length(i+1)*line}, text)
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Centimeter / 2, PadRight: vg.Centimeter / 2, PadBottom: below}
	for i, tile := range plot.Align([][]*plot.Plot{panels}, tiles, area)[0] {
		panels[i].Draw(tile)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	return errors.Join(err, f.Close())
}

// draw adds the medians as a line, and the rounds' spread.
func (c *curve) draw(p *plot.Plot, colour int) error {
	line, marks, err := plotter.NewLinePoints(c.XYs)
	if err != nil {
		return err
	}
	spread, err := plotter.NewYErrorBars(c)
	if err != nil {
		return err
	}
	line.Color, marks.Color, spread.Color = plotutil.Color(colour), plotutil.Color(colour), plotutil.Color(colour)
	marks.Shape = plotutil.Shape(colour)
	p.Add(line, marks, spread)
	p.Legend.Add(c.what, line, marks)
	p.Y.Min = 0
	for i, xy := range c.XYs {
		p.Y.Max = max(p.Y.Max, 1.5*(xy.Y+c.YErrors[i].High)) // room for the legend above the lines
	}
	return nil
}
