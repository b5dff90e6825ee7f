// Command draw makes a picture of the curves that bench -growth measured:
//
//	go -C bench/draw run . docs/growth.csv docs/growth.svg
//
// It is a module of its own, so that the daemon's go.mod gains nothing from a
// plotting library. Paths are as seen from the top of the checkout.
package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "draw:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: draw CURVES.csv PICTURE.svg")
	}
	const top = "../.."
	in, err := os.Open(filepath.Join(top, args[0]))
	if err != nil {
		return err
	}
	defer in.Close()
	machine, curves, err := read(in)
	if err != nil {
		return fmt.Errorf("read %s: %w", args[0], err)
	}
	out, err := os.Create(filepath.Join(top, args[1]))
	if err != nil {
		return err
	}
	return errors.Join(picture(out, machine, curves), out.Close())
}

// A curve has a point at each count, with its spread.
type curve struct {
	what, of, unit string
	plotter.XYs
	plotter.YErrors
}

// read takes the curves in the order in which they are written, and what they
// were measured on, which the comments tell: when it was, and where.
func read(r io.Reader) (machine []string, curves []*curve, err error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		if said, comment := strings.CutPrefix(line, "#"); comment {
			machine = append(machine, strings.TrimSpace(said))
		}
	}
	table := csv.NewReader(bytes.NewReader(text))
	table.Comment = '#'
	lines, err := table.ReadAll()
	if err != nil {
		return nil, nil, err
	}
	switch {
	case len(lines) < 2:
		return nil, nil, errors.New("there is no curve in it")
	case len(machine) == 0:
		return nil, nil, errors.New("it does not say when and on what it was measured")
	}
	for _, line := range lines[1:] {
		var n [4]float64 // at, median, least, most
		for i := range n {
			if n[i], err = strconv.ParseFloat(line[2+i], 64); err != nil {
				return nil, nil, err
			}
		}
		last := len(curves) - 1
		if last < 0 || curves[last].what != line[0] {
			curves = append(curves, &curve{what: line[0], of: line[1], unit: line[6]})
			last++
		}
		c := curves[last]
		c.XYs = append(c.XYs, plotter.XY{X: n[0], Y: n[1]})
		c.YErrors = append(c.YErrors, struct{ Low, High float64 }{n[1] - n[2], n[3] - n[1]})
	}
	return machine, curves, nil
}

// picture draws the curves of one unit into one panel, the panels beside each
// other, and below them what they were measured on.
func picture(w io.Writer, machine []string, curves []*curve) error {
	var panels []*plot.Plot
	var unit string
	colour := 0
	for _, c := range curves {
		if unit != c.unit {
			unit, colour = c.unit, 0
			panels = append(panels, panel(c))
		}
		if err := c.draw(panels[len(panels)-1], colour); err != nil {
			return err
		}
		colour++
	}
	const width, height, captionHeight = 11 * vg.Centimeter, 9.5 * vg.Centimeter, 11 * vg.Length(1)
	canvas := vgsvg.New(width*vg.Length(len(panels)), height)
	fill(canvas, width*vg.Length(len(panels)), height)
	below := vg.Length(len(machine)+1) * captionHeight
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Centimeter / 2, PadRight: vg.Centimeter / 2, PadBottom: below}
	area := draw.New(canvas)
	caption := draw.TextStyle{Color: color.Gray{Y: 0x55}, Font: font.From(plot.DefaultFont, captionHeight*4/5), Handler: plot.DefaultTextHandler}
	for i, line := range machine {
		area.FillText(caption, vg.Point{X: vg.Centimeter / 2, Y: below - vg.Length(i+1)*captionHeight}, line)
	}
	for i, places := range plot.Align([][]*plot.Plot{panels}, tiles, area)[0] {
		panels[i].Draw(places)
	}
	_, err := canvas.WriteTo(w)
	return err
}

// fill makes the ground white: readers have dark pages too.
func fill(canvas vg.Canvas, width, height vg.Length) {
	canvas.SetColor(color.White)
	canvas.Fill(vg.Rectangle{Max: vg.Point{X: width, Y: height}}.Path())
}

func panel(c *curve) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = c.of, c.unit
	p.Y.Min = 0
	p.Legend.Left, p.Legend.Top = true, true
	p.Add(plotter.NewGrid())
	return p
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
	top := 0.0
	for i, xy := range c.XYs {
		top = max(top, xy.Y+c.YErrors[i].High)
	}
	p.Y.Max = max(p.Y.Max, 1.5*top) // room for the legend above the lines
	return nil
}
