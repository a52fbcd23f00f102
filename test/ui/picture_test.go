package ui

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"slices"
	"testing"
)

// colours is the number of colours in a picture: text on a plain page needs no more.
const colours = 32

// fewColours returns a PNG with the most frequent colours; each other colour becomes the
// nearest of them.
func fewColours(data []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	area := full.Bounds()
	often := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			often[at(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(often), func(a, b color.RGBA) int {
		return cmp.Or(often[b]-often[a], cmp.Compare(uint32(a.R)<<16|uint32(a.G)<<8|uint32(a.B), uint32(b.R)<<16|uint32(b.G)<<8|uint32(b.B)))
	})
	var few color.Palette
	for _, c := range all[:min(colours, len(all))] {
		few = append(few, c)
	}
	small := image.NewPaletted(area, few)
	nearest := map[color.RGBA]uint8{}
	for _, c := range all {
		nearest[c] = uint8(few.Index(c))
	}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small)
	return out.Bytes(), err
}

func TestFewColoursKeepThePicture(t *testing.T) {
	full := image.NewRGBA(image.Rect(0, 0, 40, 40))
	for i := range 1600 {
		full.Set(i%40, i/40, color.RGBA{uint8(i / 40 * 6), 0, 0, 255})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, full); err != nil {
		t.Fatal(err)
	}
	data, err := fewColours(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got, err := png.Decode(bytes.NewReader(data))
	if err != nil || got.Bounds() != full.Bounds() {
		t.Fatal(err)
	}
	few := map[color.Color]bool{}
	for i := range 1600 {
		few[got.At(i%40, i/40)] = true
	}
	if len(few) != colours {
		t.Errorf("%d colours, want %d", len(few), colours)
	}
}
