"""Graphs in 8-bit integers."""

import logging
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

PRODUCTS = ("MatMul", "Gemm")


def quantize_graph(graph: Path, path: Path) -> None:
    """Write a graph with linear maps, embeddings and LSTMs in 8-bit integers: onnxruntime's dynamic quantization.

    Weights have one scale per output and use 7 bits only: processors without instructions for byte products add pairs
    of them in 16 bits, which 8-bit weights could overflow. Products with a vector, or with a single output, are kept.
    """
    logger = logging.getLogger()  # advises to preprocess the graph, which changes nothing here
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        quantize_dynamic(
            graph,
            path,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=narrow_products(graph),
        )
    finally:
        logger.setLevel(level)


def narrow_products(path: Path) -> list[str]:
    """Return the names of a graph's products with a vector, or with a matrix of one row or column."""
    graph = onnx.load(path).graph
    sizes = {weight.name: sorted(weight.dims)[0] if len(weight.dims) > 1 else 1 for weight in graph.initializer}
    return [node.name for node in graph.node if node.op_type in PRODUCTS and sizes.get(node.input[1], 2) == 1]
