package tinker

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// trained is the content of ForwardBackwardOutput.
type trained struct {
	logprobs [][]float32 // of each datum, row by row
	widths   []int       // of the rows; 0 means one number per token instead of rows
	metrics  map[string]float64
}

// marshal encodes a ForwardBackwardOutput, with a record for each group of consecutive data of the
// same width.
func (o *trained) marshal() []byte {
	b := appendBytes(nil, outputType, []byte("ArrayRecord"))
	for from := 0; from < len(o.logprobs); {
		to := from + 1
		for to < len(o.logprobs) && o.widths[to] == o.widths[from] {
			to++
		}
		b = appendBytes(b, outputRecords, record(o.logprobs[from:to], o.widths[from]))
		from = to
	}
	for _, name := range slices.Sorted(maps.Keys(o.metrics)) {
		e := appendBytes(nil, mapKey, []byte(name))
		e = protowire.AppendTag(e, mapValue, protowire.Fixed64Type)
		e = protowire.AppendFixed64(e, math.Float64bits(o.metrics[name]))
		b = appendBytes(b, outputMetrics, e)
	}
	return b
}

// record encodes log-probabilities as an ArrayRecord.
func record(logprobs [][]float32, width int) []byte {
	var data, offsets []byte
	for _, x := range logprobs {
		offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(data)))
		data = appendFloats(data, x)
	}
	offsets = binary.LittleEndian.AppendUint64(offsets, uint64(len(data)))
	t := appendBytes(nil, batchedData, data)
	t = appendBytes(t, batchedOffset, offsets)
	t = appendNumber(t, batchedDType, uint64(float32s))
	if width > 0 {
		t = appendBytes(t, batchedShape, protowire.AppendVarint(nil, uint64(width)))
	}
	e := appendBytes(nil, mapKey, []byte("logprobs"))
	e = appendBytes(e, mapValue, t)
	return appendNumber(appendBytes(nil, recordFields, e), recordDatums, uint64(len(logprobs)))
}

// sampled is the content of SampleResponse.
type sampled struct {
	sequences []sequence
	prompt    []float32 // nil if not requested
	topPrompt *top
	cached    int
}

// sequence is the protocol's SampledSequence.
type sequence struct {
	stop     uint64
	tokens   []int32
	logprobs []float32
	top      *top
}

// top is the protocol's TopkLogprobs: k cells per position.
type top struct {
	k        int
	tokens   []int32
	logprobs []float32
}

// marshal encodes a SampleResponse.
func (s *sampled) marshal() []byte {
	var b []byte
	for _, q := range s.sequences {
		e := appendNumber(nil, sequenceStop, q.stop)
		e = appendBytes(e, sequenceTokens, appendInts(nil, q.tokens))
		e = appendBytes(e, sequenceLogs, appendFloats(nil, q.logprobs))
		if q.top != nil {
			e = appendBytes(e, sequenceTop, q.top.marshal())
		}
		b = appendBytes(b, sampleSequences, e)
	}
	if s.prompt != nil {
		b = appendBytes(b, samplePrompt, appendFloats(nil, s.prompt))
	}
	if s.topPrompt != nil {
		b = appendBytes(b, sampleTopPrompt, s.topPrompt.marshal())
	}
	return appendNumber(b, sampleCached, uint64(s.cached))
}

func (t *top) marshal() []byte {
	b := appendBytes(nil, topTokens, appendInts(nil, t.tokens))
	b = appendBytes(b, topLogprobs, appendFloats(nil, t.logprobs))
	b = appendNumber(b, topK, uint64(t.k))
	return appendNumber(b, topLength, uint64(len(t.tokens)/max(1, t.k)))
}

func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func appendNumber(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func appendFloats(b []byte, v []float32) []byte {
	b = slices.Grow(b, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func appendInts(b []byte, v []int32) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}
