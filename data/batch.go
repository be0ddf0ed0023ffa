package data

// Batch is one micro-batch: documents one behind the other without padding,
// N tokens in all. A token sees those of its own document up to itself:
// token i attends to the keys [Lo[i], Hi[i]) of the batch.
type Batch struct {
	Tokens    []int32 // [N] ids
	Labels    []int32 // [N] the id to predict at each token (the next one), or Ignore
	Positions []int32 // [N] place in the document, from 0
	Lo, Hi    []int32 // [N] the keys that each token attends to

	Rows       int // documents
	LossTokens int // labels that are not Ignore
}

func (b *Batch) reset() {
	*b = Batch{
		Tokens: b.Tokens[:0], Labels: b.Labels[:0], Positions: b.Positions[:0],
		Lo: b.Lo[:0], Hi: b.Hi[:0],
	}
}

// add puts a document behind the others.
func (b *Batch) add(d *Dataset, doc int) {
	start, end := d.starts[doc], d.starts[doc+1]
	lo := int32(len(b.Tokens))
	b.Tokens = append(b.Tokens, d.ids[start:end]...)
	for i := start; i < end; i++ {
		label, position := int32(Ignore), int32(i-start)
		if i+1 < end { // the last token predicts nothing of its document
			label = d.label(i + 1)
		}
		if label != Ignore {
			b.LossTokens++
		}
		b.Labels = append(b.Labels, label)
		b.Positions = append(b.Positions, position)
		b.Lo = append(b.Lo, lo)
		b.Hi = append(b.Hi, lo+position+1)
	}
	b.Rows++
}
