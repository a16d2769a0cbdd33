"""C-MTEB, and English data sets in mteb's classes, on rows of one's own.

These are mteb's version 1 tasks, as the rows of ReBA's tables are. A data set that is not C-MTEB's has a name of its
own, which mteb does not know. docs/evaluate.md tells the form of each file.
"""

from __future__ import annotations

from .mteb_categories import Classification, Clustering, PairClassification, Reranking, Retrieval, Similarity
from .mteb_local import MtebTask


class ChineseSimilarity(Similarity):
    """C-MTEB's category of STS."""

    group, languages = "zh-sts", ("cmn-Hans",)


class ChinesePairs(PairClassification):
    """C-MTEB's category of pair classification."""

    group, languages = "zh-pair", ("cmn-Hans",)


class ChineseClassification(Classification):
    """C-MTEB's category of classification."""

    group, languages = "zh-classification", ("cmn-Hans",)


class ChineseClustering(Clustering):
    """C-MTEB's category of clustering."""

    group, languages = "zh-clustering", ("cmn-Hans",)


class ChineseReranking(Reranking):
    """C-MTEB's category of reranking."""

    group, languages = "zh-reranking", ("cmn-Hans",)


class ChineseRetrieval(Retrieval):
    """C-MTEB's category of retrieval."""

    group, languages = "zh-retrieval", ("cmn-Hans",)


class EnglishSimilarity(Similarity):
    """English STS by mteb's classes; `tasks.sts` has SentEval's protocol."""

    group = "mteb-sts"


class EnglishClustering(Clustering):
    """English sets that are free to use and not mteb's."""

    group = "mteb-clustering"


class EnglishRetrieval(Retrieval):
    """English retrieval."""

    group = "mteb-retrieval"


TASKS: tuple[MtebTask, ...] = (
    ChineseSimilarity("ATEC", "zh/sts/atec.test", "ATEC"),
    ChineseSimilarity("BQ", "zh/sts/bq.test", "BQ"),
    ChineseSimilarity("LCQMC", "zh/sts/lcqmc.test", "LCQMC"),
    ChineseSimilarity("PAWSX", "zh/sts/pawsx.test", "PAWSX"),
    ChineseSimilarity("STSB-zh", "zh/sts/stsb.test", "STSB"),
    ChineseSimilarity("AFQMC", "zh/sts/afqmc.dev", "AFQMC", "validation"),
    ChineseSimilarity("QBQTC", "zh/sts/qbqtc.test", "QBQTC"),
    ChinesePairs("Ocnli", "zh/pair/ocnli.dev", "Ocnli", "validation"),
    ChinesePairs("Cmnli", "zh/pair/cmnli.dev", "Cmnli", "validation"),
    ChineseClassification("TNews", "zh/classification/tnews", "TNews", "validation"),
    ChineseClassification("IFlyTek", "zh/classification/iflytek", "IFlyTek", "validation"),
    ChineseClassification(
        "MultilingualSentiment", "zh/classification/multilingualsentiment", "MultilingualSentiment"
    ),
    ChineseClassification("Waimai", "zh/classification/waimai", "Waimai"),
    ChineseClassification("OnlineShopping", "zh/classification/onlineshopping", "OnlineShopping"),
    ChineseClassification("EPRSTMT", "zh/classification/eprstmt"),  # stands in for JDReview
    ChineseClustering("CLSClusteringS2S", "zh/clustering/clsclustering_s2s", "CLSClusteringS2S"),
    ChineseClustering("CLSClusteringP2P", "zh/clustering/clsclustering_p2p", "CLSClusteringP2P"),
    ChineseClustering("ThuNewsClusteringS2S", "zh/clustering/thunews_s2s", "ThuNewsClusteringS2S"),
    ChineseReranking("DuReaderDemoReranking", "zh/reranking/dureader_demo"),  # for T2Reranking, MMarcoReranking
    ChineseRetrieval("CmrcRetrieval", "zh/retrieval/cmrc2018"),
    ChineseRetrieval("CEpilepsyQARetrieval", "zh/retrieval/cepilepsyqa"),  # for CmedqaRetrieval
    ChineseRetrieval("ChineseMedicalDialogueRetrieval", "zh/retrieval/cmedicaldialogue"),  # for MedicalRetrieval
    *(EnglishSimilarity(f"mteb-STS{year}", f"en/sts/sts{year}.test", f"STS{year}") for year in range(12, 17)),
    EnglishSimilarity("mteb-STSBenchmark", "en/sts/stsb.test", "STSBenchmark"),
    EnglishSimilarity("mteb-SICK-R", "en/sts/sickr.test", "SICK-R"),
    EnglishClustering("AgNewsClustering", "en/clustering/agnews"),
    EnglishClustering("GoogleNewsTitlesClustering", "en/clustering/googlenews_titles"),
    EnglishClustering("NewsgroupSubjectsClustering", "en/clustering/newsgroups20_subjects"),
    EnglishClustering("SearchSnippetsClustering", "en/clustering/searchsnippets"),
    EnglishClustering("StackOverflowTitlesClustering", "en/clustering/stackoverflow"),
    EnglishClustering("TweetTopicsClustering", "en/clustering/tweet"),
    EnglishRetrieval("SciFact", "en/retrieval/scifact", "SciFact", identifier="id", document="doc"),
)  # fmt: skip
"""Every local task, by name; a comment says what a stand-in stands in for."""
