package tinker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file decodes the protobuf messages of the protocol (tinker_public). Fields that are not
// named here are skipped.

// Field numbers, from the client's descriptor; wire_test.go compares them with
// testdata/tinker_public.json.
const (
	requestModelID     protowire.Number = 1 // ForwardBackwardRequest
	requestSeqID       protowire.Number = 2
	requestData        protowire.Number = 3
	requestLoss        protowire.Number = 4
	requestConfig      protowire.Number = 5
	requestForwardOnly protowire.Number = 6
	requestConfigV2    protowire.Number = 7

	datumInput  protowire.Number = 1 // Datum
	datumLosses protowire.Number = 2

	chunkText  protowire.Number = 1 // Chunk
	chunkImage protowire.Number = 2
	chunkDmel  protowire.Number = 3
	textTokens protowire.Number = 1 // EncodedTextChunk

	mapKey   protowire.Number = 1 // of the entries of any map
	mapValue protowire.Number = 2

	valueNumber protowire.Number = 1 // LossConfigValue
	valueText   protowire.Number = 2

	tensorDense  protowire.Number = 1 // Tensor
	tensorSparse protowire.Number = 2
	tensorDType  protowire.Number = 3
	tensorShape  protowire.Number = 4
	sparseValues protowire.Number = 1 // SparseCsr
	sparseRows   protowire.Number = 2
	sparseCols   protowire.Number = 3

	outputType    protowire.Number = 1 // ForwardBackwardOutput
	outputRecords protowire.Number = 2
	outputMetrics protowire.Number = 3
	recordFields  protowire.Number = 2 // ArrayRecord
	recordDatums  protowire.Number = 3
	batchedData   protowire.Number = 1 // BatchedTensor
	batchedOffset protowire.Number = 2
	batchedDType  protowire.Number = 3
	batchedShape  protowire.Number = 4

	sampleSequences protowire.Number = 1 // SampleResponse
	samplePrompt    protowire.Number = 2
	sampleTopPrompt protowire.Number = 3
	sampleCached    protowire.Number = 4
	sequenceStop    protowire.Number = 1 // SampledSequence
	sequenceTokens  protowire.Number = 2
	sequenceLogs    protowire.Number = 3
	sequenceTop     protowire.Number = 4
	topTokens       protowire.Number = 1 // TopkLogprobs
	topLogprobs     protowire.Number = 2
	topK            protowire.Number = 3
	topLength       protowire.Number = 4
)

// dtype is the protocol's DType.
type dtype uint64

const (
	float32s dtype = 1
	int64s   dtype = 2
)

// Values of the protocol's StopReason.
const (
	stoppedByToken  = 0
	stoppedByLength = 1
)

// noLogprob fills the empty cells of TopkLogprobs.
const noLogprob = -99999

// errWire is the error for a malformed message.
var errWire = errors.New("malformed message")

// fieldValue is the value of a message field.
type fieldValue struct {
	kind  protowire.Type
	bits  uint64 // value of a number
	bytes []byte // value of a string, bytes or message
}

// eachField calls each for every field of a message.
func eachField(b []byte, each func(n protowire.Number, v fieldValue) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("%w: %w", errWire, protowire.ParseError(size))
		}
		b = b[size:]
		v := fieldValue{kind: kind}
		switch kind {
		case protowire.VarintType:
			v.bits, size = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v.bits, size = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			v.bytes, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return fmt.Errorf("%w: field %d: %w", errWire, n, protowire.ParseError(size))
		}
		b = b[size:]
		if err := each(n, v); err != nil {
			return err
		}
	}
	return nil
}

// is checks the wire type of a field.
func (v fieldValue) is(name string, kind protowire.Type) error {
	if v.kind != kind {
		return fmt.Errorf("%w: %s: found wire type %d, expected %d", errWire, name, v.kind, kind)
	}
	return nil
}

// text reads a string.
func (v fieldValue) text(name string, to *string) error {
	if err := v.is(name, protowire.BytesType); err != nil {
		return err
	}
	if !utf8.Valid(v.bytes) {
		return fmt.Errorf("%w: %s: not UTF-8", errWire, name)
	}
	*to = string(v.bytes)
	return nil
}

// message reads a field that contains a message.
func (v fieldValue) message(name string, each func(n protowire.Number, v fieldValue) error) error {
	if err := v.is(name, protowire.BytesType); err != nil {
		return err
	}
	if err := eachField(v.bytes, each); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// entry reads a map entry with a string key.
func (v fieldValue) entry(name string, value func(key string, v fieldValue) error) error {
	var key string
	var found fieldValue
	err := v.message(name, func(n protowire.Number, v fieldValue) error {
		switch n {
		case mapKey:
			return v.text("key", &key)
		case mapValue:
			found = v
		}
		return nil
	})
	if err != nil {
		return err
	}
	return value(key, found)
}

// request is the protocol's ForwardBackwardRequest.
type request struct {
	modelID     string
	seqID       int64
	data        []datum
	loss        string
	config      map[string]float64
	forwardOnly bool
	unsupported error // first well-formed part that is not supported
}

// datum is the protocol's Datum with its chunks joined.
type datum struct {
	tokens []int32
	inputs map[string]tensorData
}

// tensorData is the protocol's Tensor.
type tensorData struct {
	dtype dtype
	shape []int64
	dense []byte
	csr   *sparse // nil if dense
}

// sparse is the protocol's SparseCsr.
type sparse struct{ values, rows, cols []byte }

// parseRequest decodes a ForwardBackwardRequest. It fails if the message is malformed.
func parseRequest(b []byte) (*request, error) {
	r := &request{}
	var v2 map[string]float64
	err := eachField(b, func(n protowire.Number, v fieldValue) error {
		switch n {
		case requestModelID:
			return v.text("model_id", &r.modelID)
		case requestSeqID:
			if err := v.is("seq_id", protowire.VarintType); err != nil {
				return err
			}
			r.seqID = int64(int32(v.bits))
		case requestData:
			d, err := r.datum(v)
			if err != nil {
				return fmt.Errorf("data[%d]: %w", len(r.data), err)
			}
			r.data = append(r.data, d)
		case requestLoss:
			return v.text("loss_fn", &r.loss)
		case requestConfig:
			return v.entry("loss_fn_config", func(key string, v fieldValue) error {
				return r.number(&r.config, key, v, v.is("loss_fn_config", protowire.Fixed64Type))
			})
		case requestForwardOnly:
			if err := v.is("forward_only", protowire.VarintType); err != nil {
				return err
			}
			r.forwardOnly = v.bits != 0
		case requestConfigV2:
			return v.entry("loss_fn_config_v2", func(key string, v fieldValue) error { return r.configValue(&v2, key, v) })
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if v2 != nil {
		r.config = v2
	}
	return r, nil
}

// number stores a number in a map.
func (r *request) number(to *map[string]float64, key string, v fieldValue, err error) error {
	if err != nil {
		return err
	}
	if *to == nil {
		*to = map[string]float64{}
	}
	(*to)[key] = math.Float64frombits(v.bits)
	return nil
}

// configValue decodes a LossConfigValue.
func (r *request) configValue(to *map[string]float64, key string, v fieldValue) error {
	return v.message("loss_fn_config_v2", func(n protowire.Number, v fieldValue) error {
		switch n {
		case valueNumber:
			return r.number(to, key, v, v.is(key, protowire.Fixed64Type))
		case valueText:
			r.lacks("a text in loss_fn_config (%q)", key)
			return v.is(key, protowire.BytesType)
		}
		return nil
	})
}

// lacks records the first unsupported feature of the request.
func (r *request) lacks(format string, args ...any) {
	if r.unsupported == nil {
		r.unsupported = fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...)
	}
}

// datum decodes a Datum.
func (r *request) datum(v fieldValue) (datum, error) {
	d := datum{inputs: map[string]tensorData{}}
	err := v.message("datum", func(n protowire.Number, v fieldValue) error {
		switch n {
		case datumInput:
			return v.message("model_input", func(n protowire.Number, v fieldValue) error { return r.chunk(&d, n, v) })
		case datumLosses:
			return v.entry("loss_fn_inputs", func(key string, v fieldValue) error {
				t, err := readTensor(v)
				if err != nil {
					return fmt.Errorf("loss_fn_inputs %q: %w", key, err)
				}
				d.inputs[key] = t
				return nil
			})
		}
		return nil
	})
	return d, err
}

// chunk reads a chunk of any kind.
func (r *request) chunk(d *datum, n protowire.Number, v fieldValue) error {
	switch n {
	case chunkText:
		return v.message("encoded_text", func(n protowire.Number, v fieldValue) error {
			if n != textTokens {
				return nil
			}
			if err := v.is("tokens", protowire.BytesType); err != nil {
				return err
			}
			if len(v.bytes)%4 != 0 {
				return fmt.Errorf("%w: tokens: found %d bytes, expected 4 for each", errWire, len(v.bytes))
			}
			for b := v.bytes; len(b) > 0; b = b[4:] {
				d.tokens = append(d.tokens, int32(binary.LittleEndian.Uint32(b)))
			}
			return nil
		})
	case chunkImage:
		r.lacks("images in model_input")
	case chunkDmel:
		r.lacks("sounds (dmel) in model_input")
	}
	return nil
}

// readTensor decodes a Tensor. It does not copy the bytes.
func readTensor(v fieldValue) (tensorData, error) {
	var t tensorData
	bytesOf := func(name string, to *[]byte, v fieldValue) error {
		*to = v.bytes
		return v.is(name, protowire.BytesType)
	}
	err := v.message("tensor", func(n protowire.Number, v fieldValue) error {
		switch n {
		case tensorDense:
			t.csr = nil
			return bytesOf("dense", &t.dense, v)
		case tensorSparse:
			t.csr = &sparse{}
			return v.message("sparse_csr", func(n protowire.Number, v fieldValue) error {
				switch n {
				case sparseValues:
					return bytesOf("values", &t.csr.values, v)
				case sparseRows:
					return bytesOf("crow_indices", &t.csr.rows, v)
				case sparseCols:
					return bytesOf("col_indices", &t.csr.cols, v)
				}
				return nil
			})
		case tensorDType:
			t.dtype = dtype(v.bits)
			return v.is("dtype", protowire.VarintType)
		case tensorShape:
			if v.kind == protowire.VarintType { // an unpacked element
				t.shape = append(t.shape, int64(v.bits))
				return nil
			}
			if err := v.is("shape", protowire.BytesType); err != nil {
				return err
			}
			for b := v.bytes; len(b) > 0; {
				x, size := protowire.ConsumeVarint(b)
				if size < 0 {
					return fmt.Errorf("%w: shape: %w", errWire, protowire.ParseError(size))
				}
				t.shape, b = append(t.shape, int64(x)), b[size:]
			}
		}
		return nil
	})
	return t, err
}
