package main

import (
	"bytes"
	"errors"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A panel is one diagram of a plot: a unit as something grows.
type panel struct{ unit, y, x string }

// file is the plot's name.
func (o *outcome) file() string { return o.name + ".svg" }

// colours are distinct also for readers who see few colours (Okabe and Ito, 2008).
var colours = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff},
}

var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.RingGlyph{},
}

// drawn reports whether the scenario has a plot.
func (o *outcome) drawn() bool { return len(o.panels) > 0 || o.bars.unit != "" }

// draw writes the plot into the directory: both axes are logarithmic, so that what grows in
// proportion is a straight line.
func (o *outcome) draw(dir string) error {
	if o.bars.unit != "" {
		return o.drawBars(dir)
	}
	plots := make([][]*plot.Plot, 1)
	legend := plot.NewLegend()
	legend.TextStyle.Font.Variant = "Sans"
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(3)
	for i, p := range o.panels {
		d, err := o.panel(p, &legend, i == 0)
		if err != nil {
			return err
		}
		plots[0] = append(plots[0], d)
	}
	const height, each, legendWidth = 8 * vg.Centimeter, 11 * vg.Centimeter, 5 * vg.Centimeter
	width := vg.Length(len(o.panels))*each + legendWidth
	canvas := vgsvg.New(width, height)
	page := draw.New(canvas)
	page.SetColor(color.White) // also where the reader's page is dark
	page.Fill(page.Rectangle.Path())
	tiles := draw.Tiles{Rows: 1, Cols: len(o.panels), PadX: 6 * vg.Millimeter, PadTop: 3 * vg.Millimeter, PadRight: 4 * vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadBottom: 2 * vg.Millimeter}
	for i, c := range plot.Align(plots, tiles, draw.Crop(page, 0, -legendWidth, 0, 0))[0] {
		plots[0][i].Draw(c)
	}
	legend.Draw(draw.Crop(page, width-legendWidth, 0, 0, -5*vg.Millimeter))
	return o.write(dir, canvas)
}

// drawBars draws a bar for each contestant, on an axis that begins at 0. Ours have another colour.
func (o *outcome) drawBars(dir string) error {
	d := plot.New()
	fonts(d)
	d.X.Label.Text = o.bars.x
	d.X.Tick.Marker = plot.TickerFunc(func(least, most float64) []plot.Tick {
		ticks := plot.DefaultTicks{}.Ticks(least, most)
		for i, t := range ticks {
			if t.Label != "" {
				ticks[i].Label = tick(t.Value)
			}
		}
		return ticks
	})
	who := o.present()
	slices.Reverse(who) // the first is at the top
	sides := map[kind]plotter.Values{peer: make(plotter.Values, len(who)), ours: make(plotter.Values, len(who))}
	for i, w := range who {
		if v := summarize(o.series(w, 0, o.bars.unit)); v.n > 0 {
			sides[kindOf(w)][i] = v.center
		}
	}
	for _, k := range []kind{peer, ours} {
		bars, err := plotter.NewBarChart(sides[k], 4*vg.Millimeter)
		if err != nil {
			return err
		}
		bars.Horizontal, bars.LineStyle.Width = true, 0
		if bars.Color = colours[1]; k == ours {
			bars.Color = colours[0]
		}
		d.Add(bars)
	}
	d.NominalY(who...)
	d.X.Min = 0
	width, height := 18*vg.Centimeter, vg.Length(len(who))*7*vg.Millimeter+15*vg.Millimeter
	canvas := vgsvg.New(width, height)
	page := draw.New(canvas)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	d.Draw(draw.Crop(page, 2*vg.Millimeter, -6*vg.Millimeter, 2*vg.Millimeter, -2*vg.Millimeter))
	return o.write(dir, canvas)
}

// write writes the plot to its file.
func (o *outcome) write(dir string, canvas *vgsvg.Canvas) error {
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Where that font is not, others are as wide.
	text := strings.ReplaceAll(svg.String(), "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif")
	return os.WriteFile(filepath.Join(dir, o.file()), []byte(text), 0o644)
}

func fonts(d *plot.Plot) {
	for _, style := range []*font.Font{&d.Title.TextStyle.Font, &d.X.Label.TextStyle.Font, &d.Y.Label.TextStyle.Font, &d.X.Tick.Label.Font, &d.Y.Tick.Label.Font} {
		style.Variant = "Sans"
	}
}

func (o *outcome) panel(p panel, legend *plot.Legend, first bool) (*plot.Plot, error) {
	d := plot.New()
	fonts(d)
	d.X.Label.Text, d.Y.Label.Text = p.x, p.y
	d.X.Scale, d.Y.Scale = plot.LogScale{}, plot.LogScale{}
	d.X.Tick.Marker, d.Y.Tick.Marker = sizes(o.xs), decades{}
	d.Add(plotter.NewGrid())
	least, most := 0.0, 0.0
	for i, who := range o.who {
		var points plotter.XYs
		for _, x := range o.xs {
			s := summarize(o.series(who, x, p.unit))
			if s.n > 0 && s.center > 0 { // a logarithm has no 0
				points = append(points, plotter.XY{X: float64(x), Y: s.center})
				if least == 0 || s.center < least {
					least = s.center
				}
				most = max(most, s.center)
			}
		}
		if len(points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, marks.Color = colours[i%len(colours)], colours[i%len(colours)]
		line.Width, marks.Shape, marks.Radius = vg.Points(1.5), shapes[i%len(shapes)], vg.Points(3)
		d.Add(line, marks)
		if first {
			legend.Add(who, line, marks)
		}
	}
	if most == 0 {
		return nil, errors.New("there is nothing to draw")
	}
	d.X.Min, d.X.Max = float64(o.xs[0]), float64(o.xs[len(o.xs)-1])
	d.Y.Min, d.Y.Max = decadesAround(least, most)
	return d, nil
}

// sizes are the ticks of what grows.
type sizes []int

// Ticks has no use for the bounds: they are the sizes'.
func (s sizes) Ticks(float64, float64) (ticks []plot.Tick) {
	for _, x := range s {
		ticks = append(ticks, plot.Tick{Value: float64(x), Label: grouped(int64(x))})
	}
	return ticks
}

// decadesAround are the powers of ten between which all values lie.
func decadesAround(least, most float64) (from, to float64) {
	from, to = math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, math.Ceil(math.Log10(most)))
	if from == to {
		to *= 10
	}
	return from, to
}

// decades are ticks at the powers of ten, and at 2 and 5 times these.
type decades struct{}

// Ticks are those between the bounds. The ones between have labels where there is room.
func (decades) Ticks(least, most float64) (ticks []plot.Tick) {
	for e := math.Round(math.Log10(least)); e <= math.Round(math.Log10(most)); e++ {
		for _, k := range []float64{1, 2, 5} {
			v := k * math.Pow(10, e)
			if v > most*1.001 {
				continue
			}
			label := ""
			if k == 1 || most/least < 1001 {
				label = tick(v)
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

// tick writes a round number with no more digits than it has.
func tick(v float64) string {
	if v >= 1 {
		return grouped(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
