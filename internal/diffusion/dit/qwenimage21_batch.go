package dit

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// slotTokens is the number of control tokens that replace one text token.
const slotTokens = 4

// Space implements [Transformer].
func (m *QwenImage21) Space() Space {
	return Space{Channels: m.Channels, Multiple: 2, Text: m.Text, Controls: true}
}

// layout returns l without the text tokens that are slots.
func (m *QwenImage21) layout(l layout, samples ...Sample) layout {
	l.text = 1
	for _, s := range samples {
		l.text = max(l.text, s.Prompt.tokens()-s.Prompt.slots())
	}
	return l
}

// slots returns the number of text tokens that controls replace.
func (p Prompt) slots() (n int) {
	for _, is := range p.Slots {
		if is {
			n++
		}
	}
	return n
}

// Bounds implements [Transformer].
func (m *QwenImage21) Bounds(samples int, s Sample) map[string]int {
	return m.layout(places.layout(samples, s), s).bounds()
}

// Arrays implements [Transformer].
func (m *QwenImage21) Arrays(b *data.Batch, samples []Sample) error {
	space := m.Space()
	space.Multiple = 1 // images must fill whole slots
	l, err := space.newLayout(places, samples)
	if err == nil {
		err = oneFrame(samples)
	}
	if err != nil {
		return err
	}
	l = m.layout(l, samples...)
	for i, s := range samples {
		if err := m.checkSlots(l, s.Prompt); err != nil {
			return fmt.Errorf("dit: %w: sample %d: %w", ErrSample, i, err)
		}
	}
	b.Reset()
	l.setPictures(b, samples, places.pack)
	setSinusoids(b, Time, samples, func(s Sample) []float32 { return sinusoid(s.Timestep/1000*1000, 1, timeChannels) })
	m.setTokens(b, l, samples)
	return nil
}

// checkSlots returns an error if an image does not fill whole slots, if the controls do not
// fill the slots of the prompt, or if the slots of an image are not contiguous.
func (m *QwenImage21) checkSlots(l layout, p Prompt) error {
	need := 0
	for i, g := range l.grids {
		if g.tokens()%slotTokens != 0 {
			return fmt.Errorf("found %d places of picture %d, expected a multiple of %d", g.tokens(), i, slotTokens)
		}
		if i > 0 {
			need += g.tokens() / slotTokens
		}
	}
	if p.Slots != nil && len(p.Slots) != p.tokens() {
		return fmt.Errorf("text: found slots of %d tokens, expected %d", len(p.Slots), p.tokens())
	}
	if found := p.slots(); found != need {
		return fmt.Errorf("text: found %d slots for controls, expected %d, one for each %d places of the controls", found, need, slotTokens)
	}
	t := 0
	for i, g := range l.grids[1:] {
		for t < len(p.Slots) && !p.Slots[t] {
			t++
		}
		for range g.tokens() / slotTokens {
			if !p.Slots[t] {
				return fmt.Errorf("text: found token %d between the slots of control %d, expected them side by side", t, i)
			}
			t++
		}
	}
	return nil
}

// setTokens sets the texts of a batch, the rows of all tokens and the bounds of their keys.
// The rows of a sample are the masked text tokens, then all others in order.
func (m *QwenImage21) setTokens(b *data.Batch, l layout, samples []Sample) {
	n := l.samples * l.joint()
	x := qwenTokens{
		layout: l, text: make([]float32, l.samples*l.text*m.Text),
		textRows: make([]int32, l.samples*l.text), imageRows: make([]int32, l.samples*l.image()),
		lo: make([]int32, n), hi: make([]int32, n), of: make([]int32, n), at: make([][3]int, n),
	}
	for i, s := range samples {
		x.add(i, s.Prompt)
	}
	b.SetFloats(Text, x.text)
	b.SetInts(TextRows, x.textRows)
	b.SetInts(ImageRows, x.imageRows)
	b.SetInts(nn.KeyStart, x.lo)
	b.SetInts(nn.KeyEnd, x.hi)
	if m.ClearPrefix {
		b.SetInts(tokenConditions, x.of)
	}
	b.SetFloats(Rotary, rotary{10000, m.Axes, angles32}.table(n, func(i int, at []int) { copy(at, x.at[i][:]) }))
}

// qwenTokens holds the tokens of a batch of Qwen-Image 2.1.
type qwenTokens struct {
	layout
	text                []float32
	textRows, imageRows []int32
	lo, hi, of          []int32  // of rows: bounds of their keys, and index of their modulation
	at                  [][3]int // positions of rows

	row, first, place int // of the current sample: next row, first row that is attended to, next position
}

// add adds the tokens of sample i.
func (x *qwenTokens) add(i int, p Prompt) {
	unseen, features, token := i*x.joint(), p.Features, 0
	x.first = unseen + x.layout.text
	for t := range p.tokens() {
		if p.reads(t) && p.sees(t) {
			x.first--
		}
	}
	x.row, x.place = x.first, 0
	for row := unseen; row < (i+1)*x.joint(); row++ {
		x.lo[row], x.hi[row], x.of[row] = int32(unseen), int32(unseen), int32(x.samples)
	}
	picture, t := 1, 0
	for t < p.tokens() {
		if !p.reads(t) {
			x.addPicture(i, picture)
			t += x.grids[picture].tokens() / slotTokens
			picture++
			continue
		}
		at := i*x.layout.text + token
		copy(x.text[at*features:], p.Values[t*features:(t+1)*features])
		if p.sees(t) {
			x.textRows[at] = int32(x.row)
			x.at[x.row] = [3]int{x.place, x.place, x.place}
			x.see(1)
		} else {
			x.textRows[at] = int32(unseen)
			unseen++
		}
		x.place++
		token++
		t++
	}
	for ; token < x.layout.text; token++ {
		x.textRows[i*x.layout.text+token] = int32(unseen)
		unseen++
	}
	x.addPicture(i, 0)
}

// addPicture adds an image of sample i. Its tokens share one position on the first axis; rows
// and columns are centered.
func (x *qwenTokens) addPicture(i, picture int) {
	g, at := x.grids[picture], i*x.image()
	for _, before := range x.grids[:picture] {
		at += before.tokens()
	}
	for t := range g.tokens() {
		row := x.row + t
		x.imageRows[at+t] = int32(row)
		x.at[row] = [3]int{x.place, t/g.width - (g.height - g.height/2), t%g.width - (g.width - g.width/2)}
		if picture == 0 {
			x.of[row] = int32(i)
		}
	}
	x.place += max(g.height, g.width)
	x.see(g.tokens())
}

// see lets the next rows attend to each other and to the rows before them.
func (x *qwenTokens) see(rows int) {
	for end := x.row + rows; x.row < end; x.row++ {
		x.lo[x.row], x.hi[x.row] = int32(x.first), int32(end)
	}
}

// reads reports whether a token is a text token, not a slot.
func (p Prompt) reads(token int) bool { return p.Slots == nil || !p.Slots[token] }

// Unpack implements [Transformer].
func (m *QwenImage21) Unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return places.unpackAll(rows, samples, like)
}

var _ Transformer = (*QwenImage21)(nil)
